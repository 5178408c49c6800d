//! What calls come to while controld starts. The socket is there before the database, the image store and the rest: kubelet
//! and people are told what is waited for, rather than that nobody is there.
//!
//! Until [`Opener::open`], `Version` and `ListMetricDescriptors` are answered, `Status` has its conditions false, and all else is
//! Unavailable; the two say what is waited for. kubelet asks for descriptors once in its life. `GetContainerEvents` waits: kubelet does
//! without events for good once it was refused five times, which takes it less than a start.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use proto::cri::runtime_service_server::RuntimeServiceServer;
use tokio::sync::watch;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::service::Routes;
use tower::Service;

use super::cri::starting::Starting;

/// What is answered by [`Starting`] until the door is open.
const ANSWERED: [&str; 3] = [
    "/runtime.v1.RuntimeService/Version",
    "/runtime.v1.RuntimeService/Status",
    "/runtime.v1.RuntimeService/ListMetricDescriptors",
];

/// What waits until the door is open.
const HELD: &str = "/runtime.v1.RuntimeService/GetContainerEvents";

/// The services, once they are there. Clones share it.
#[derive(Debug, Clone)]
pub struct Door {
    state: watch::Receiver<State>,
    /// What we say our version is.
    version: &'static str,
}

/// Opens a [`Door`].
#[derive(Debug)]
pub struct Opener(watch::Sender<State>);

#[derive(Debug, Clone)]
enum State {
    /// What for.
    Waiting(Arc<str>),
    Open(Routes),
}

/// A door that is shut, and what opens it.
#[must_use]
pub fn shut(version: &'static str) -> (Door, Opener) {
    let (opener, state) = watch::channel(State::Waiting("its first step".into()));
    (Door { state, version }, Opener(opener))
}

impl Opener {
    /// The start has come to this: what calls are told from now on.
    pub fn waits_for(&self, what: impl Into<String>) {
        self.0.send_replace(State::Waiting(what.into().into()));
    }

    /// Calls come to these from now on.
    pub fn open(&self, services: Routes) {
        self.0.send_replace(State::Open(services));
    }
}

impl Service<Request<Body>> for Door {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let state = self.state.borrow().clone();
        match state {
            State::Open(mut services) => Box::pin(services.call(request)),
            State::Waiting(_) if request.uri().path() == HELD => Box::pin(held(self.state.clone(), request)),
            State::Waiting(what) => {
                let why = format!("controld starts; it waits for {what}");
                if ANSWERED.contains(&request.uri().path()) {
                    return Box::pin(RuntimeServiceServer::new(Starting::new(why, self.version)).call(request));
                }
                Box::pin(std::future::ready(Ok(Status::unavailable(why).into_http())))
            }
        }
    }
}

/// The answer of the services once they are there; a client that does not wait for it takes it back.
async fn held(mut state: watch::Receiver<State>, request: Request<Body>) -> Result<Response<Body>, Infallible> {
    let opened = state.wait_for(|state| matches!(state, State::Open(_))).await.map(|state| state.clone());
    match opened {
        Ok(State::Open(mut services)) => services.call(request).await,
        // The start was given up.
        Ok(State::Waiting(_)) | Err(_) => Ok(Status::unavailable("controld goes down").into_http()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hyper_util::rt::TokioIo;
    use proto::cri::runtime_service_client::RuntimeServiceClient;
    use proto::cri::{
        GetEventsRequest, ListContainersRequest, ListMetricDescriptorsRequest, StatusRequest, VersionRequest,
    };
    use tokio::net::UnixStream;
    use tokio_util::sync::CancellationToken;
    use tonic::Code;
    use tonic::transport::Endpoint;

    use super::*;
    use crate::api::edge::Calls;
    use crate::api::{serve, socket};

    #[tokio::test]
    async fn a_client_hears_what_the_start_waits_for_and_then_gets_its_answers() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("cri.sock");
        let (door, opener) = shut("1.2.3+0123456789ab");
        let listener = socket::open(&path).expect("made");
        let stop = CancellationToken::new();
        let serving =
            tokio::spawn(serve(listener, door, Calls::default(), stop.clone().cancelled_owned(), Duration::ZERO));
        let connector = tower::service_fn(move |_| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        });
        let channel = Endpoint::from_static("http://x").connect_with_connector(connector).await.expect("connected");
        let mut client = RuntimeServiceClient::new(channel);

        opener.waits_for("the image store at `/x`");
        let version = client.version(VersionRequest::default()).await.expect("answered").into_inner();
        assert_eq!((version.runtime_name.as_str(), version.runtime_api_version.as_str()), ("virtlet", "v1"));
        assert_eq!(version.runtime_version, "1.2.3+0123456789ab");
        let status = client.status(StatusRequest::default()).await.expect("answered").into_inner();
        let conditions = status.status.expect("a status").conditions;
        let told: Vec<_> = conditions.iter().map(|is| (is.r#type.as_str(), is.status, is.reason.as_str())).collect();
        assert_eq!(told, [("RuntimeReady", false, "Starting"), ("NetworkReady", false, "Starting")]);
        let why = "controld starts; it waits for the image store at `/x`";
        assert!(conditions.iter().all(|condition| condition.message == why), "{conditions:?}");
        let refused = client.list_containers(ListContainersRequest::default()).await.expect_err("not yet");
        assert_eq!((refused.code(), refused.message()), (Code::Unavailable, why));

        let described = client.list_metric_descriptors(ListMetricDescriptorsRequest {}).await.expect("answered");
        assert!(!described.into_inner().descriptors.is_empty());
        let mut listener = client.clone();
        let events = tokio::spawn(async move { listener.get_container_events(GetEventsRequest {}).await });
        // Its turn has come, and so has that of the next call.
        client.version(VersionRequest::default()).await.expect("answered");
        assert!(!events.is_finished(), "it waits");

        // Over the connection that it has.
        opener.open(Routes::new(RuntimeServiceServer::new(Starting::new("open".into(), "1.2.3"))));
        let answered = client.list_containers(ListContainersRequest::default()).await.expect_err("not of this service");
        assert_eq!(answered.code(), Code::Unimplemented);
        let events = events.await.expect("no bug").expect_err("not of this service");
        assert_eq!(events.code(), Code::Unimplemented, "{events}");
        stop.cancel();
        serving.await.expect("ended").expect("well");
    }
}
