//! What a request gets. Pure but for the token, which is spent.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_ENCODING, HOST, HeaderMap, HeaderValue, ORIGIN, SET_COOKIE};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::json;

use super::super::text::shown;
use super::answer::{self, Answers, plain, takes_gzip};
use super::door::Door;
use super::files::File;
use super::session::Kind;

/// Below this, with the token behind it, is the door.
const ENTER: &str = "/enter/";
/// What is at the root.
const PAGE: &str = "/index.html";
const HTML: &str = "text/html; charset=utf-8";
const SPENT: &str = "This link does not open the page (any more): a link does so once.\n\n\
                     If you have, the page is where your browser went then. If nobody of yours has opened it before,\n\
                     somebody else has: end virtletctl by Ctrl-C.\n\
                     It prints a new link when it is run again.\n";
const NO_COOKIE: &str = "Open the link that virtletctl has printed; it works once, for one browser.\n";

/// A page of a machine, and who may see it.
#[derive(Debug)]
pub(super) struct Site {
    /// What a browser may have asked for us by: loopback's names with our port.
    hosts: [String; 2],
    answers: Answers,
    door: Door,
    about: String,
    files: &'static [File],
}

impl Site {
    pub(super) fn new(name: &str, port: u16, files: &'static [File]) -> Self {
        let hosts = [format!("127.0.0.1:{port}"), format!("localhost:{port}")];
        let about = json!({ "name": shown(name) }).to_string();
        Self { answers: Answers::new(&hosts), hosts, door: Door::new(port), about, files }
    }

    /// Where a browser is to begin.
    pub(super) fn url(&self) -> String {
        format!("http://{}{ENTER}{}", self.hosts[0], self.door.token())
    }

    /// The answer, and what the connection becomes by it.
    pub(super) fn answer<B>(&self, request: &Request<B>) -> (Response<Full<Bytes>>, Option<Kind>) {
        let (response, kind) = self.found(request);
        (self.answers.dress(response), kind)
    }

    fn found<B>(&self, request: &Request<B>) -> (Response<Full<Bytes>>, Option<Kind>) {
        let (headers, path) = (request.headers(), request.uri().path());
        // A name of others that was made to lead here brings their pages' requests.
        let Some(host) = self.host(headers) else {
            let hosts = self.hosts.join(" and http://");
            let why = format!("Served as http://{hosts} alone; `ssh -L` is to have the same port at both ends.\n");
            return (plain(StatusCode::MISDIRECTED_REQUEST, why), None);
        };
        if request.method() != Method::GET {
            return (plain(StatusCode::METHOD_NOT_ALLOWED, "Use GET.\n".into()), None);
        }
        if let Some(token) = path.strip_prefix(ENTER) {
            let response = match self.door.enter(token) {
                Some(cookie) => entered(cookie, self.door.place()),
                None => plain(StatusCode::FORBIDDEN, SPENT.into()),
            };
            return (response, None);
        }
        if !self.door.knows(headers) {
            return (plain(StatusCode::FORBIDDEN, NO_COOKIE.into()), None);
        }
        let response = match path.strip_prefix(self.door.place()).unwrap_or_default() {
            "/about" => answer::of("application/json", self.about.clone()),
            "/screen" => return upgraded(request, host, Kind::Screen),
            "/console" => return upgraded(request, host, Kind::Console),
            path => {
                let path = if path == "/" { PAGE } else { path };
                match self.files.iter().find(|file| file.path == path) {
                    Some(file) => served(file, headers),
                    None => plain(StatusCode::NOT_FOUND, "No such file.\n".into()),
                }
            }
        };
        (response, None)
    }

    /// By which of our names we were asked for.
    fn host(&self, headers: &HeaderMap) -> Option<&str> {
        let mut said = headers.get_all(HOST).iter();
        let host = said.next().and_then(|host| host.to_str().ok())?;
        self.hosts.iter().map(String::as_str).find(|ours| *ours == host).filter(|_| said.next().is_none())
    }
}

/// Goes on to the page by itself: a browser that has come from a page of others does not show our cookie yet.
fn entered(cookie: HeaderValue, place: &str) -> Response<Full<Bytes>> {
    let page = format!(
        "<!doctype html><html lang=\"en\"><title>Machine</title><meta http-equiv=\"refresh\" content=\"0;url={place}/\">\
         <p><a href=\"{place}/\">To the machine</a></p></html>\n"
    );
    let mut response = answer::of(HTML, page);
    response.headers_mut().insert(SET_COOKIE, cookie);
    response
}

/// A browser says which page wants a WebSocket, and shows our cookie for those of others, too.
fn upgraded<B>(request: &Request<B>, host: &str, kind: Kind) -> (Response<Full<Bytes>>, Option<Kind>) {
    let headers = request.headers();
    let mut origins = headers.get_all(ORIGIN).iter();
    let ours = format!("http://{host}");
    if origins.next().is_none_or(|origin| origin.as_bytes() != ours.as_bytes()) || origins.next().is_some() {
        return (plain(StatusCode::FORBIDDEN, "This is for our own page alone.\n".into()), None);
    }
    match streaming::page::accept(request.method(), headers) {
        Some(response) => (response, Some(kind)),
        None => (plain(StatusCode::BAD_REQUEST, "This is a WebSocket.\n".into()), None),
    }
}

fn served(file: &File, headers: &HeaderMap) -> Response<Full<Bytes>> {
    if takes_gzip(headers) {
        let mut response = answer::of(file.mime, file.gzip);
        response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        return response;
    }
    match file.plain() {
        Ok(plain) => answer::of(file.mime, plain),
        Err(_) => plain(StatusCode::INTERNAL_SERVER_ERROR, "What was packed cannot be unpacked.\n".into()),
    }
}

#[cfg(test)]
mod tests;
