//! From a request to its answer, or to a stream.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderMap, HeaderValue, SEC_WEBSOCKET_PROTOCOL};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use streaming::websocket::opening;
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::{debug, info};

use super::access::{self, Wanted};
use super::asked::{self, Options, is_set};
use super::figures::Figures;
use super::front_proxy::{FrontProxy, User};
use super::instance::{Clients, find};
use super::pod::Stream;
use super::refusal::Refusal;
use super::room::{Room, Session, Sessions, held};
use super::route::{Route, route};
use super::session::{End, join};
use super::{Answer, Slots, discovery, power};
use crate::cluster::api_of;
use crate::group::Group;
use crate::verbs::{Does, EXPAND, MACHINES, Verb, group};

/// What clients of KubeVirt call a stream that is nothing but its bytes.
const PLAIN: &str = "plain.kubevirt.io";
/// A request is answered within this: the API server waits a minute.
const REQUEST: Duration = Duration::from_secs(58);
/// A client that was told that there is a stream takes it within this.
const UPGRADED: Duration = Duration::from_secs(10);
/// Longest body: a VM, or what is said of a verb.
const MAX_VM: usize = 3 << 20;
const MAX_OPTIONS: usize = 64 << 10;

/// What answers.
pub(super) struct Server {
    pub(super) group: Group,
    pub(super) release: String,
    pub(super) clients: Clients,
    pub(super) figures: Arc<Figures>,
    pub(super) slots: Slots,
    pub(super) sessions: Arc<Sessions>,
    /// For bodies that are long, and for what nodes say: clients may be slow to send the one and to take the other.
    pub(super) bodies: Room,
    pub(super) said: Room,
    /// Nobody holds its other end once the server ends.
    pub(super) stopped: watch::Receiver<()>,
}

/// An object that a subresource is of.
#[derive(Debug, Clone, Copy)]
struct Of<'a> {
    verb: &'static Verb,
    namespace: &'a str,
    name: &'a str,
}

impl Server {
    /// Answers a request; of a client that is believed if it comes by a proxy.
    pub(super) async fn answer(&self, request: Request<Incoming>, proxy: Option<&FrontProxy>) -> Answer {
        let path = request.uri().path().to_owned();
        let (name, answered) = match route(self.group, request.method(), &path) {
            Ok(route) => {
                let name = match &route {
                    Route::Verb { verb, .. } => verb.name,
                    Route::Instead { .. } => "none",
                    Route::Expand { .. } => EXPAND,
                    _ => "discovery",
                };
                (name, timeout(REQUEST, self.routed(request, route, proxy)).await)
            }
            Err(refusal) => ("none", Ok(Err(refusal))),
        };
        let answered = answered.unwrap_or_else(|_| Err(Refusal::late("the server", REQUEST.as_secs())));
        let mut answer = answered.unwrap_or_else(|refusal| {
            debug!(path, code = refusal.code.as_u16(), why = refusal.message, "refused");
            refusal.response()
        });
        if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            // A proxy that sends the next request while this one closes would fail it, and a PUT is not tried again.
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        self.figures.answered(name, answer.status().as_u16());
        answer
    }

    async fn routed(
        &self,
        request: Request<Incoming>,
        route: Route<'_>,
        proxy: Option<&FrontProxy>,
    ) -> Result<Answer, Refusal> {
        let said = |value: &Value| Ok(typed("application/json", value.to_string()));
        match route {
            Route::Groups => {
                let (content, value) = discovery::groups(self.group, request.headers());
                return Ok(typed(&content, value.to_string()));
            }
            Route::Group => return said(&discovery::group_of(self.group)),
            Route::Resources => return said(&discovery::resources(self.group)),
            Route::OpenApi(of) => return said(&discovery::open_api(of, &self.release)),
            Route::Version => return said(&discovery::version(&self.release)),
            Route::Health => return Ok(typed("text/plain", "ok")),
            _ => {}
        }
        let user = proxy.and_then(|proxy| proxy.user(request.headers())).ok_or_else(|| {
            Refusal::new(
                StatusCode::UNAUTHORIZED,
                "nobody asks: only the API server is believed who does, by its certificate",
            )
        })?;
        match route {
            Route::Instead { what, instead } => {
                let text = format!("{what} is not offered: {instead}");
                Err(Refusal::new(StatusCode::NOT_IMPLEMENTED, text))
            }
            Route::Expand { namespace } => {
                self.check(&user, "update", EXPAND, "", (namespace, "")).await?;
                let is_short = request.body().size_hint().upper().is_some_and(|most| most <= MAX_OPTIONS as u64);
                let room = if is_short { None } else { Some(self.bodies.take().await?) };
                // There are no instance types: a VM is as it is.
                let vm = body(request, MAX_VM).await?;
                asked::check_object(&vm)?;
                let vm = match room {
                    Some(room) => held(vm.into(), room),
                    None => vm,
                };
                Ok(typed("application/json", vm))
            }
            Route::Verb { verb, namespace, name, port } => {
                self.check(&user, verb.right(), verb.of, verb.name, (namespace, name)).await?;
                self.verb(request, &user, Of { verb, namespace, name }, port).await
            }
            _ => Err(Refusal::new(StatusCode::NOT_FOUND, "there is nothing")),
        }
    }

    async fn check(
        &self,
        user: &User,
        right: &str,
        resource: &str,
        subresource: &str,
        (namespace, name): (&str, &str),
    ) -> Result<(), Refusal> {
        let group = group(self.group);
        let wanted = Wanted { group: &group, right, resource, subresource, namespace, name };
        access::check(&self.clients.calls, user, wanted).await
    }

    async fn verb(
        &self,
        mut request: Request<Incoming>,
        user: &User,
        of: Of<'_>,
        port: Option<u16>,
    ) -> Result<Answer, Refusal> {
        let Of { verb, namespace, name } = of;
        let at = (namespace, name);
        let query = request.uri().query().map(str::to_owned);
        let is_awaited = matches!(verb.does, Does::Console | Does::Vnc);
        let running = || find(&self.clients, self.group, at, (verb.of == MACHINES, is_awaited), user);
        match verb.does {
            Does::Power(power) => {
                let options = Options::read(&body(request, MAX_OPTIONS).await?)?;
                power::ask(&self.clients.calls, self.group, at, power, &options).await?;
                info!(verb = verb.name, namespace, name, user = user.name, "asks the operator");
                Ok(accepted())
            }
            Does::Expand => {
                let of = json!({
                    "apiVersion": self.group.api_version(), "kind": verb.kind(), "metadata": {"namespace": namespace},
                });
                let api = api_of(&self.clients.calls, &of);
                let vm = api.get(name).await.map_err(|error| Refusal::of_call("read the VM", &error))?;
                let text = serde_json::to_string(&vm).unwrap_or_default();
                Ok(typed("application/json", text))
            }
            Does::Act(act) => {
                let options = Options::read(&body(request, MAX_OPTIONS).await?)?;
                running().await?.act(act, &options).await?;
                info!(verb = verb.name, namespace, name, user = user.name, "done by the node");
                Ok(accepted())
            }
            Does::Tell(tell) => {
                let (running, room) = (running().await?, self.said.take().await?);
                let told = running.tell(tell).await?.to_string();
                Ok(typed("application/json", held(told.into(), room)))
            }
            Does::Screenshot => {
                let moves = is_set(query.as_deref(), "moveCursor");
                let (running, room) = (running().await?, self.said.take().await?);
                Ok(typed("image/png", held(running.screenshot(moves).await?, room)))
            }
            Does::Console | Does::Vnc | Does::PortForward => {
                let switch = switch(request.method(), request.headers())?;
                let session = self.sessions.begin(namespace)?;
                let running = running().await?;
                let (stream, first) = match (verb.does, port) {
                    (Does::Vnc, _) => running.vnc(!is_set(query.as_deref(), "preserveSession")).await?,
                    (_, Some(port)) => (running.port(port).await?, Bytes::new()),
                    (_, None) => (running.console().await?, Bytes::new()),
                };
                self.begin(&mut request, of, user, (stream, first), session);
                Ok(switch)
            }
        }
    }

    /// Goes on with a stream once the client has been answered.
    fn begin(
        &self,
        request: &mut Request<Incoming>,
        Of { verb, namespace, name }: Of<'_>,
        user: &User,
        (stream, first): (Stream, Bytes),
        session: Session,
    ) {
        let upgrade = hyper::upgrade::on(request);
        let (stopped, counted) = (self.stopped.clone(), self.figures.session(verb.name));
        let (namespace, name, user) = (namespace.to_owned(), name.to_owned(), user.name.clone());
        tokio::spawn(async move {
            match timeout(UPGRADED, upgrade).await {
                Ok(Ok(client)) => {
                    info!(verb = verb.name, namespace, name, user, "a stream begins");
                    let end = join(TokioIo::new(client), stream, first, stopped).await;
                    let lost = match &end {
                        End::ClientLost(lost) | End::PodLost(lost) => common::Chain(lost).to_string(),
                        _ => String::new(),
                    };
                    info!(verb = verb.name, namespace, name, user, ?end, lost, "a stream ends");
                }
                Ok(Err(error)) => debug!(error = %common::Chain(&error), "a client leaves before its stream begins"),
                Err(_) => debug!("a client does not take its stream"),
            }
            drop((session, counted));
        });
    }
}

/// All of a body.
async fn body(request: Request<Incoming>, most: usize) -> Result<Bytes, Refusal> {
    match Limited::new(request.into_body(), most).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            let text = format!("the body is longer than {most} bytes");
            Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, text))
        }
        Err(_) => Err(Refusal::new(StatusCode::BAD_REQUEST, "the body has no end")),
    }
}

/// The answer that begins a stream, if the request is one for it.
fn switch(method: &Method, headers: &HeaderMap) -> Result<Answer, Refusal> {
    let wrong = |text| Refusal::new(StatusCode::BAD_REQUEST, text);
    if !opening::upgrades(headers, opening::UPGRADE) {
        return Err(wrong("this is a stream: ask for an upgrade to WebSocket"));
    }
    let accept = opening::accept(method, headers);
    let accept = accept.ok_or_else(|| wrong("WebSocket needs version 13 and a key of 16 bytes in base64"))?;
    let protocol = SEC_WEBSOCKET_PROTOCOL.as_str();
    let is_offered = opening::values(headers, protocol).next().is_some();
    if is_offered && !opening::lists(headers, protocol, PLAIN) {
        return Err(wrong("the one protocol here is plain.kubevirt.io"));
    }
    let mut response = opening::switch(accept);
    if is_offered {
        response.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(PLAIN));
    }
    Ok(response)
}

fn accepted() -> Answer {
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::ACCEPTED;
    response
}

fn typed(content: &str, body: impl Into<Bytes>) -> Answer {
    let mut response = Response::new(Full::new(body.into()));
    if let Ok(content) = HeaderValue::from_str(content) {
        response.headers_mut().insert(CONTENT_TYPE, content);
    }
    response
}
