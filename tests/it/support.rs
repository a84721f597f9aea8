//! Services, names, and waiting.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The address of a service; `None` skips the test, unless `CI` is set.
pub(crate) fn service(variable: &str) -> Option<String> {
    match std::env::var(variable) {
        Ok(address) if !address.is_empty() => Some(address),
        _ if std::env::var_os("CI").is_some() => {
            panic!(
                "{variable} is not set: run the tests with scripts/test, which starts the service"
            )
        }
        _ => {
            println!("skipped: {variable} is not set");
            None
        }
    }
}

/// The address of a service that is not everywhere; `None` skips the test.
pub(crate) fn optional_service(variable: &str) -> Option<String> {
    let address = std::env::var(variable).ok();
    let address = address.filter(|address| !address.is_empty());
    if address.is_none() {
        println!("skipped: {variable} is not set");
    }
    address
}

/// A name that no other test, and no earlier run, has used.
pub(crate) fn unique(prefix: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    let run = uuid::Uuid::now_v7().simple().to_string();
    format!("{prefix}_{next}_{}", &run[..16])
}

/// Waits until something is true, for a minute at most.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut condition: impl FnMut() -> F) {
    for _ in 0..1200 {
        if condition().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("it never happened that {what}");
}

/// A client of the SQS API at that endpoint, an emulator's as a rule.
pub(crate) fn sqs_client(endpoint: &str) -> aws_sdk_sqs::Client {
    let config = aws_sdk_sqs::Config::builder()
        .behavior_version(aws_sdk_sqs::config::BehaviorVersion::latest())
        .region(aws_sdk_sqs::config::Region::from_static("us-east-1"))
        .credentials_provider(aws_sdk_sqs::config::Credentials::for_tests())
        .endpoint_url(endpoint)
        .http_client(aws_smithy_http_client::Builder::new().build_http());
    aws_sdk_sqs::Client::from_conf(config.build())
}
