//! A proxy that loses a COMMIT or the answer to it, and that can fall silent as a half-open
//! connection does: nothing gets through any more, and nobody is told.

use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use oneffect_postgres::{Postgres, PostgresConfig};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// What becomes of the next COMMIT or ROLLBACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// The server never sees the COMMIT.
    Before,
    /// The server acts on the COMMIT, and its answer is lost.
    After,
    /// The server never sees the COMMIT, and nobody hears of it.
    SilentBefore,
    /// The server acts on the COMMIT, and nobody hears of it.
    SilentAfter,
    /// The server acts on the ROLLBACK, and nobody hears of it.
    SilentAfterRollback,
}

impl Cut {
    fn hits(self, sent: &[u8]) -> bool {
        let word: &[u8] = if self == Self::SilentAfterRollback {
            b"ROLLBACK"
        } else {
            b"COMMIT"
        };
        sent.windows(word.len()).any(|window| window == word)
    }
}

#[derive(Default)]
struct State {
    armed: Mutex<Option<Cut>>,
    /// For new connections. Those that have a cancelled one are half open, and stay so.
    silence: Mutex<CancellationToken>,
}

pub(super) struct Proxy {
    state: Arc<State>,
    port: u16,
    _accepting: AbortOnDropHandle<()>,
}

impl Proxy {
    pub(super) async fn start(upstream: &PgConnectOptions) -> Self {
        let upstream = (upstream.get_host().to_owned(), upstream.get_port());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::<State>::default();
        let shared = Arc::clone(&state);
        let accepting = async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(upstream.clone()).await.unwrap();
                connections.spawn(relay(client, server, Arc::clone(&shared)));
            }
        };
        #[allow(clippy::disallowed_methods, reason = "the handle aborts it on drop")]
        let accepting = AbortOnDropHandle::new(tokio::spawn(accepting));
        Self {
            state,
            port,
            _accepting: accepting,
        }
    }

    pub(super) fn arm(&self, cut: Cut) {
        *self.state.armed.lock().unwrap() = Some(cut);
    }

    /// From now on nothing gets through.
    pub(super) fn fall_silent(&self) {
        self.state.silence.lock().unwrap().cancel();
    }

    /// New connections work again; those that were half open stay so.
    pub(super) fn recover(&self) {
        *self.state.silence.lock().unwrap() = CancellationToken::new();
    }

    pub(super) async fn store(&self, options: &PgConnectOptions) -> Postgres {
        self.store_with(options, 10, PostgresConfig::default())
            .await
    }

    pub(super) async fn store_with(
        &self,
        options: &PgConnectOptions,
        connections: u32,
        config: PostgresConfig,
    ) -> Postgres {
        let options = options.clone().host("127.0.0.1").port(self.port);
        let pool = PgPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(Duration::from_secs(5))
            .test_before_acquire(false)
            .connect_with(options);
        Postgres::from_pool_with(pool.await.unwrap(), config).unwrap()
    }
}

/// Until either side is through, or the cut.
async fn relay(mut client: TcpStream, mut server: TcpStream, state: Arc<State>) {
    let silence = state.silence.lock().unwrap().clone();
    let mut up = vec![0; 64 * 1024];
    let mut down = vec![0; 64 * 1024];
    loop {
        tokio::select! {
            biased;
            () = silence.cancelled() => {
                // Both sockets stay open.
                return pending().await;
            }
            read = client.read(&mut up) => {
                let Ok(n @ 1..) = read else { return };
                let cut = state.armed.lock().unwrap().take_if(|cut| cut.hits(&up[..n]));
                match cut {
                    None => server.write_all(&up[..n]).await.unwrap(),
                    Some(Cut::Before) => return,
                    Some(Cut::SilentBefore) => return pending().await,
                    Some(Cut::After) => {
                        server.write_all(&up[..n]).await.unwrap();
                        let _lost = server.read(&mut down).await;
                        return;
                    }
                    Some(Cut::SilentAfter | Cut::SilentAfterRollback) => {
                        server.write_all(&up[..n]).await.unwrap();
                        return pending().await;
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
