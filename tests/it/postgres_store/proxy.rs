//! A proxy that loses the answer to a COMMIT, or the COMMIT itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use oneffect_postgres::{Postgres, PostgresConfig};
use sqlx::PgPool;
use sqlx::postgres::PgConnectOptions;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

/// What becomes of the next COMMIT.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cut {
    /// The server never sees it.
    Before = 1,
    /// The server acts on it, and its answer is lost.
    After = 2,
}

pub(super) struct Proxy {
    cut: Arc<AtomicU8>,
    port: u16,
    _accepting: AbortOnDropHandle<()>,
}

impl Proxy {
    pub(super) async fn start(upstream: &PgConnectOptions) -> Self {
        let upstream = (upstream.get_host().to_owned(), upstream.get_port());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let cut = Arc::new(AtomicU8::new(0));
        let armed = Arc::clone(&cut);
        let accepting = async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(upstream.clone()).await.unwrap();
                connections.spawn(relay(client, server, Arc::clone(&armed)));
            }
        };
        #[allow(clippy::disallowed_methods, reason = "the handle aborts it on drop")]
        let accepting = AbortOnDropHandle::new(tokio::spawn(accepting));
        Self {
            cut,
            port,
            _accepting: accepting,
        }
    }

    pub(super) fn arm(&self, cut: Cut) {
        self.cut.store(cut as u8, Ordering::SeqCst);
    }

    pub(super) async fn store(&self, options: &PgConnectOptions) -> Postgres {
        let options = options.clone().host("127.0.0.1").port(self.port);
        let pool = PgPool::connect_with(options).await.unwrap();
        Postgres::from_pool_with(pool, PostgresConfig::default()).unwrap()
    }
}

/// Until either side is through, or the cut.
async fn relay(mut client: TcpStream, mut server: TcpStream, cut: Arc<AtomicU8>) {
    let mut up = vec![0; 64 * 1024];
    let mut down = vec![0; 64 * 1024];
    loop {
        tokio::select! {
            read = client.read(&mut up) => {
                let Ok(n @ 1..) = read else { return };
                let is_commit = up[..n].windows(6).any(|window| window == b"COMMIT");
                match if is_commit { cut.swap(0, Ordering::SeqCst) } else { 0 } {
                    0 => server.write_all(&up[..n]).await.unwrap(),
                    1 => return,
                    _ => {
                        server.write_all(&up[..n]).await.unwrap();
                        let _lost = server.read(&mut down).await;
                        return;
                    }
                }
            }
            read = server.read(&mut down) => {
                let Ok(n @ 1..) = read else { return };
                if client.write_all(&down[..n]).await.is_err() {
                    return;
                }
            }
        }
    }
}
