//! Presets, which the API server asks for before it makes an instance.
//!
//! Each replica answers, whichever of them writes: what the API server asks and nobody answers, it refuses. Whoever reaches the port may
//! ask: an answer has nothing but what presets of a namespace say, and those have no secrets.

mod review;

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::runtime::reflector::Store;
use kube::{Api, Client};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tracing::{debug, info};

use crate::cache::cache;
use crate::certificates::{Current, Keeper, Place};
use crate::group::Group;
use crate::metrics::Metrics;
use crate::names::{TLS_SECRET, WEBHOOK_CONFIGURATION, WEBHOOK_PATH};
use crate::objects::{Meta as _, Preset};
use crate::serve::{MAX_CLIENTS, clients};

/// Longest question: an API server takes no longer object.
const MAX_BODY: usize = 3 << 20;
/// Time for the TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// A client has so long to say what it wants, and may be silent for so long after an answer.
const HEADERS: Duration = Duration::from_secs(10);
/// A question is answered within this time, less than the API server waits.
const REQUEST: Duration = Duration::from_secs(4);
/// A connection is used for so long; a client comes again, and finds the certificate of that day.
const LONGEST: Duration = Duration::from_secs(60);

type Answer = Response<Full<Bytes>>;

/// Answers the API server, for ever: knows presets, keeps the certificate, and says when it is ready.
pub async fn run(
    client: Client,
    group: Group,
    listener: TcpListener,
    (namespace, service): (&str, &str),
    metrics: Arc<Metrics>,
) {
    let (presets, watches) = cache(Api::<Preset>::all_with(client.clone(), &group), group, "", Vec::new());
    let place = Place {
        namespace: namespace.to_owned(),
        service: service.to_owned(),
        secret: TLS_SECRET,
        told_in: WEBHOOK_CONFIGURATION.to_owned(),
    };
    let (keeper, certificate) = Keeper::<MutatingWebhookConfiguration>::new(client, place);
    let ready = {
        let (presets, mut certificate) = (presets.clone(), certificate.clone());
        async move {
            let known = presets.wait_until_ready().await;
            if known.is_ok() && certificate.wait_for(Option::is_some).await.is_ok() {
                info!("answers the API server");
                metrics.becomes_ready();
            }
        }
    };
    tokio::join!(watches, keeper.keep(), ready, serve(listener, certificate, presets));
}

/// Answers, for ever.
async fn serve(listener: TcpListener, certificate: Current, presets: Store<Preset>) {
    let served = |stream| {
        let (current, presets) = (certificate.borrow().clone(), presets.clone());
        async move {
            // Without a certificate there is nothing to say to anybody.
            if let Some(current) = current {
                connection(stream, TlsAcceptor::from(current), presets).await;
            }
        }
    };
    clients(listener, MAX_CLIENTS, served).await;
}

async fn connection(stream: TcpStream, tls: TlsAcceptor, presets: Store<Preset>) {
    // Answers are small.
    let _ = stream.set_nodelay(true);
    let stream = match timeout(HANDSHAKE, tls.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return debug!(error = %common::Chain(&error), "no TLS with a client"),
        Err(_) => return debug!("a client says nothing"),
    };
    let service = service_fn(move |request| {
        let presets = presets.clone();
        async move { Ok::<_, Infallible>(timeout(REQUEST, answer(request, &presets)).await.unwrap_or_else(|_| late())) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    // Of a client that is gone nothing is to be said.
    if timeout(LONGEST, connection.as_mut()).await.is_err() {
        connection.as_mut().graceful_shutdown();
        let _ = timeout(REQUEST, connection).await;
    }
}

async fn answer(request: Request<Incoming>, presets: &Store<Preset>) -> Answer {
    if request.uri().path() != WEBHOOK_PATH {
        return text(StatusCode::NOT_FOUND, format!("there is {WEBHOOK_PATH}"));
    }
    if request.method() != Method::POST {
        return text(StatusCode::METHOD_NOT_ALLOWED, "it is posted to");
    }
    // Without all presets some would be lost without a word.
    if !matches!(presets.wait_until_ready().now_or_never(), Some(Ok(()))) {
        return text(StatusCode::SERVICE_UNAVAILABLE, "presets are not known yet");
    }
    let body = match Limited::new(request.into_body(), MAX_BODY).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => {
            return text(StatusCode::PAYLOAD_TOO_LARGE, format!("longer than {MAX_BODY} bytes"));
        }
        Err(_) => return text(StatusCode::BAD_REQUEST, "the body has no end"),
    };
    match review::answer(&body, |namespace| of(presets, namespace)) {
        Ok(answer) => {
            let mut response = Response::new(Full::new(Bytes::from(answer.to_string())));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        }
        Err(error) => text(StatusCode::BAD_REQUEST, error.to_string()),
    }
}

/// Presets of a namespace.
fn of(presets: &Store<Preset>, namespace: &str) -> Vec<serde_json::Value> {
    let all = presets.state_filter(|preset| preset.namespace() == namespace);
    // A preset has nothing that JSON has not.
    all.iter().map(|preset| serde_json::to_value(&**preset).unwrap_or_default()).collect()
}

fn late() -> Answer {
    text(StatusCode::REQUEST_TIMEOUT, format!("the question did not come within {} s", REQUEST.as_secs()))
}

fn text(status: StatusCode, text: impl Into<String>) -> Answer {
    let mut response = Response::new(Full::new(Bytes::from(text.into() + "\n")));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests;
