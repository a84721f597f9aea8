//! A small SQS that follows rules of the real one that no emulator follows, on virtual time.
//!
//! It stands in for the HTTP client of the AWS SDK, so everything but the network is real. Rules
//! are those of the API reference and the developer guide:
//! - a receipt handle of a FIFO queue ends with its visibility; deleting by it is refused;
//! - deleting by a handle that a newer one has replaced may leave the message there (it does here);
//! - a message hides for no more than 12 hours from its receipt;
//! - in a FIFO queue no message of a group is handed out while another one of it is hidden;
//! - a receive that is repeated with its `ReceiveRequestAttemptId` gives the same messages;
//! - a batch with doubled entry ids, with none or with more than ten is refused.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::{
    BehaviorVersion, Config, Credentials, HttpClient, Region, RuntimeComponents,
};
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::http::StatusCode;
use aws_smithy_types::body::SdkBody;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::Instant;

const TWELVE_HOURS: Duration = Duration::from_hours(12);

/// The queue. Clones are the same queue.
#[derive(Clone, Debug)]
pub(crate) struct Stub(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
    changed: Notify,
    is_fifo: bool,
}

#[derive(Default)]
struct State {
    messages: Vec<Stored>,
    next_id: usize,
    attempts: HashMap<String, Vec<(String, String)>>,
    requests: Vec<Request>,
    rule: Option<Rule>,
}

type Rule = Box<dyn FnMut(&Request) -> Fault + Send>;

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State")
            .field("messages", &self.messages)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Debug)]
struct Stored {
    id: String,
    body: String,
    group: Option<String>,
    handle: Option<String>,
    receives: u32,
    received_at: Instant,
    hidden_until: Instant,
}

/// One request, as the SDK sent it.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// `ReceiveMessage` and so on.
    pub(crate) action: String,
    pub(crate) body: Value,
    pub(crate) at: Instant,
}

impl Request {
    pub(crate) fn is(&self, action: &str) -> bool {
        self.action == action
    }

    pub(crate) fn entries(&self) -> &[Value] {
        self.body["Entries"].as_array().map_or(&[], Vec::as_slice)
    }

    /// The visibility timeouts that its entries ask for.
    pub(crate) fn timeouts(&self) -> Vec<u64> {
        let entries = self.entries().iter();
        entries
            .filter_map(|entry| entry["VisibilityTimeout"].as_u64())
            .collect()
    }
}

/// What goes wrong with a request.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    None,
    /// It is not done, and no answer ever comes.
    BlackHole,
    /// It is done, and no answer ever comes.
    LoseAnswer,
    /// It is done this much later.
    Delay(Duration),
    /// It is done, and answered this much later.
    DelayAnswer(Duration),
    /// It is refused with this status and code.
    Refuse(u16, &'static str),
    /// The entries of these messages fail with this code and are not done; whose fault that is.
    FailEntries {
        message: String,
        code: &'static str,
        sender_fault: bool,
    },
}

impl Stub {
    pub(crate) fn standard() -> Self {
        Self::new(false)
    }

    pub(crate) fn fifo() -> Self {
        Self::new(true)
    }

    fn new(is_fifo: bool) -> Self {
        Self(Arc::new(Inner {
            state: Mutex::default(),
            changed: Notify::new(),
            is_fifo,
        }))
    }

    pub(crate) fn url(&self) -> &'static str {
        if self.0.is_fifo {
            "https://sqs.us-east-1.amazonaws.com/000000000000/stub.fifo"
        } else {
            "https://sqs.us-east-1.amazonaws.com/000000000000/stub"
        }
    }

    pub(crate) fn client(&self) -> Client {
        let config = Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::from_static("us-east-1"))
            .credentials_provider(Credentials::for_tests())
            .http_client(self.clone());
        Client::from_conf(config.build())
    }

    /// Decides about every request from now on.
    pub(crate) fn rule(&self, rule: impl FnMut(&Request) -> Fault + Send + 'static) {
        self.state().rule = Some(Box::new(rule));
    }

    pub(crate) fn no_rule(&self) {
        self.state().rule = None;
    }

    /// Puts a message in; returns its id.
    pub(crate) fn send(&self, group: Option<&str>, body: &str) -> String {
        let mut state = self.state();
        let id = format!("m{}", state.next_id);
        state.next_id += 1;
        state.messages.push(Stored {
            id: id.clone(),
            body: body.to_owned(),
            group: group.map(str::to_owned),
            handle: None,
            receives: 0,
            received_at: Instant::now(),
            hidden_until: Instant::now(),
        });
        drop(state);
        self.0.changed.notify_waiters();
        id
    }

    pub(crate) fn send_many(&self, group: Option<&str>, count: usize) -> Vec<String> {
        (0..count).map(|_| self.send(group, "{}")).collect()
    }

    /// All requests of one kind so far.
    pub(crate) fn requests(&self, action: &str) -> Vec<Request> {
        let state = self.state();
        let requests = state.requests.iter();
        requests
            .filter(|request| request.is(action))
            .cloned()
            .collect()
    }

    /// How many messages there are, hidden ones included.
    pub(crate) fn len(&self) -> usize {
        self.state().messages.len()
    }

    /// How many messages a receive would find, order aside.
    pub(crate) fn visible(&self) -> usize {
        let now = Instant::now();
        let state = self.state();
        let messages = state.messages.iter();
        messages.filter(|m| m.hidden_until <= now).count()
    }

    /// How often each message has been received.
    pub(crate) fn receives(&self) -> Vec<u32> {
        self.state().messages.iter().map(|m| m.receives).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap()
    }

    async fn answer(self, request: Request) -> Result<HttpResponse, ConnectorError> {
        let fault = {
            let mut state = self.state();
            state.requests.push(request.clone());
            match state.rule.as_mut() {
                Some(rule) => rule(&request),
                None => Fault::None,
            }
        };
        match &fault {
            Fault::BlackHole => std::future::pending().await,
            Fault::Delay(delay) => tokio::time::sleep(*delay).await,
            Fault::Refuse(status, code) => return Ok(refusal(*status, code)),
            Fault::None | Fault::LoseAnswer | Fault::DelayAnswer(_) | Fault::FailEntries { .. } => {
            }
        }
        let response = match request.action.as_str() {
            "GetQueueAttributes" => ok(&json!({ "Attributes": {} })),
            "ReceiveMessage" => self.receive(&request.body).await,
            "DeleteMessageBatch" | "ChangeMessageVisibilityBatch" => self.batch(&request, &fault),
            other => panic!("the stub does not know {other}"),
        };
        match fault {
            Fault::LoseAnswer => std::future::pending().await,
            Fault::DelayAnswer(delay) => tokio::time::sleep(delay).await,
            Fault::None
            | Fault::BlackHole
            | Fault::Delay(_)
            | Fault::Refuse(..)
            | Fault::FailEntries { .. } => {}
        }
        Ok(response)
    }

    async fn receive(&self, body: &Value) -> HttpResponse {
        let deadline = Instant::now() + seconds(&body["WaitTimeSeconds"]);
        let visibility = seconds(&body["VisibilityTimeout"]);
        loop {
            let changed = self.0.changed.notified();
            let (messages, next) = self.take(body["ReceiveRequestAttemptId"].as_str(), visibility);
            if !messages.is_empty() {
                return ok(&json!({ "Messages": messages }));
            }
            if Instant::now() >= deadline {
                return ok(&json!({}));
            }
            let wake = next.map_or(deadline, |next| next.min(deadline));
            let _ = tokio::time::timeout_at(wake, changed).await;
        }
    }

    /// What a receive finds now, and when looking again may find more.
    fn take(&self, attempt: Option<&str>, visibility: Duration) -> (Vec<Value>, Option<Instant>) {
        let now = Instant::now();
        let mut state = self.state();
        if let Some(before) = attempt
            .and_then(|attempt| state.attempts.get(attempt))
            .cloned()
        {
            let mut again = Vec::new();
            for message in &mut state.messages {
                let handle = message.handle.clone().unwrap_or_default();
                if before.contains(&(message.id.clone(), handle)) {
                    message.hidden_until = now + visibility;
                    again.push(message.to_json());
                }
            }
            return (again, None);
        }
        let mut taken = Vec::new();
        let mut blocked: Vec<String> = Vec::new();
        if self.0.is_fifo {
            let hidden = state.messages.iter().filter(|m| m.hidden_until > now);
            blocked.extend(hidden.filter_map(|m| m.group.clone()));
        }
        for message in &mut state.messages {
            let is_blocked = message.group.as_ref().is_some_and(|g| blocked.contains(g));
            if taken.len() == 10 || message.hidden_until > now || is_blocked {
                continue;
            }
            message.receives += 1;
            message.handle = Some(format!("{}#{}", message.id, message.receives));
            message.received_at = now;
            message.hidden_until = now + visibility;
            taken.push(message.clone());
        }
        if let (Some(attempt), false) = (attempt, taken.is_empty()) {
            let handles = taken.iter();
            let handles = handles.map(|m| (m.id.clone(), m.handle.clone().unwrap_or_default()));
            let handles = handles.collect();
            state.attempts.insert(attempt.to_owned(), handles);
        }
        let next = state.messages.iter().map(|m| m.hidden_until);
        let next = next.filter(|at| *at > now).min();
        (taken.iter().map(Stored::to_json).collect(), next)
    }

    fn batch(&self, request: &Request, fault: &Fault) -> HttpResponse {
        let entries = request.entries();
        if entries.is_empty() {
            return refusal(400, "EmptyBatchRequest");
        }
        if entries.len() > 10 {
            return refusal(400, "TooManyEntriesInBatchRequest");
        }
        let mut ids: Vec<_> = entries
            .iter()
            .map(|entry| entry["Id"].to_string())
            .collect();
        ids.sort_unstable();
        ids.dedup();
        if ids.len() < entries.len() {
            return refusal(400, "BatchEntryIdsNotDistinct");
        }
        let (mut successful, mut failed) = (Vec::new(), Vec::new());
        for entry in entries {
            match self.entry(request, entry, fault) {
                Ok(()) => successful.push(json!({ "Id": entry["Id"] })),
                Err((code, sender_fault)) => failed.push(json!({
                    "Id": entry["Id"], "Code": code, "SenderFault": sender_fault, "Message": "by rule",
                })),
            }
        }
        self.0.changed.notify_waiters();
        ok(&json!({ "Successful": successful, "Failed": failed }))
    }

    fn entry(
        &self,
        request: &Request,
        entry: &Value,
        fault: &Fault,
    ) -> Result<(), (&'static str, bool)> {
        let now = Instant::now();
        let handle = entry["ReceiptHandle"].as_str().unwrap_or_default();
        let id = handle.split('#').next().unwrap_or_default();
        if let Fault::FailEntries {
            message,
            code,
            sender_fault,
        } = fault
            && message == id
        {
            return Err((code, *sender_fault));
        }
        let mut state = self.state();
        let Some(at) = state.messages.iter().position(|m| m.id == id) else {
            // Deleting twice is fine.
            if request.is("DeleteMessageBatch") {
                return Ok(());
            }
            return Err(("InvalidParameterValue", true));
        };
        let message = &mut state.messages[at];
        let is_newest = message.handle.as_deref() == Some(handle);
        let is_hidden = message.hidden_until > now;
        if request.is("DeleteMessageBatch") {
            if self.0.is_fifo && !(is_newest && is_hidden) {
                return Err(("InvalidParameterValue", true));
            }
            if is_newest {
                state.messages.remove(at);
            }
            return Ok(());
        }
        let until = now + seconds(&entry["VisibilityTimeout"]);
        if !is_newest {
            return Err(("ReceiptHandleIsInvalid", true));
        }
        if !is_hidden {
            return Err(("MessageNotInflight", true));
        }
        if until > message.received_at + TWELVE_HOURS {
            return Err(("InvalidParameterValue", true));
        }
        message.hidden_until = until;
        Ok(())
    }
}

impl Stored {
    fn to_json(&self) -> Value {
        let mut attributes = json!({
            "ApproximateReceiveCount": self.receives.to_string(),
            "SentTimestamp": "1700000000000",
        });
        if let Some(group) = &self.group {
            attributes["MessageGroupId"] = json!(group);
            attributes["MessageDeduplicationId"] = json!(self.id);
        }
        json!({
            "MessageId": self.id,
            "ReceiptHandle": self.handle,
            "Body": self.body,
            "Attributes": attributes,
        })
    }
}

fn seconds(value: &Value) -> Duration {
    Duration::from_secs(value.as_u64().unwrap_or_default())
}

fn ok(body: &Value) -> HttpResponse {
    response(200, body)
}

fn refusal(status: u16, code: &str) -> HttpResponse {
    let kind = format!("com.amazonaws.sqs#{code}");
    response(status, &json!({ "__type": kind, "message": "by rule" }))
}

fn response(status: u16, body: &Value) -> HttpResponse {
    let status = StatusCode::try_from(status).unwrap();
    HttpResponse::new(status, SdkBody::from(body.to_string()))
}

impl HttpConnector for Stub {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let target = request.headers().get("x-amz-target").unwrap_or_default();
        let body = request.body().bytes().unwrap_or_default();
        let request = Request {
            action: target.rsplit('.').next().unwrap_or_default().to_owned(),
            body: serde_json::from_slice(body).unwrap_or_default(),
            at: Instant::now(),
        };
        HttpConnectorFuture::new(self.clone().answer(request))
    }
}

impl HttpClient for Stub {
    fn http_connector(
        &self,
        _: &HttpConnectorSettings,
        _: &RuntimeComponents,
    ) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}
