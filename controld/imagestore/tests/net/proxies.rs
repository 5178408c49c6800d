//! Proxies, for plain and for encrypted servers.

use std::collections::BTreeMap;
use std::net::{Shutdown, SocketAddr, TcpStream};

use imagestore::net::{Ask, EnvProxies, TransportSpec};
use vmimage::error::ErrorKind;

use crate::asking::{client, client_with, get, text, with};
use crate::rig::{Call, Server};
use crate::tls::record;

fn through(proxy: &str) -> TransportSpec {
    TransportSpec { proxy: Some(proxy.to_owned()), ..TransportSpec::default() }
}

/// Connects to whatever it is told.
fn connect(call: &mut Call<'_>) {
    let target: SocketAddr = call.path().parse().expect("an address");
    let server = TcpStream::connect(target).expect("connected");
    call.send("HTTP/1.1 200 Go on\r\nVia: it\r\n\r\n");
    std::thread::scope(|scope| {
        scope.spawn(|| copy(&server, &call.tcp));
        copy(&call.tcp, &server);
    });
}

/// Until either hangs up.
fn copy(mut from: &TcpStream, mut to: &TcpStream) {
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}

fn heads(server: &Server) -> Vec<String> {
    server.requests.lock().expect("sound").iter().map(|head| head.to_lowercase()).collect()
}

#[tokio::test]
async fn a_plain_server_is_asked_for_by_its_whole_url() {
    let proxy = Server::plain(|call| match call.path() {
        "http://image.example/a?b" => call.redirect("http://other.example:81/c"),
        "http://other.example:81/c" => call.ok(b"by proxy"),
        _ => {}
    });
    let request =
        with("http://user:pw@image.example/a?b", &through(&proxy.url("").replace("http://", "http://us%65r:secret@")));
    assert_eq!(text(&client(), &request).await.as_deref(), Ok("by proxy"));
    let heads = heads(&proxy);
    assert!(heads[0].starts_with("get http://image.example/a?b http/1.1\r\n"), "{heads:?}");
    assert!(heads[0].contains("\r\nhost: image.example\r\n"), "{heads:?}");
    // base64 of `user:secret`, on every hop; that of the first server, on the first alone.
    assert!(heads.iter().all(|head| head.contains("proxy-authorization: basic dxnlcjpzzwnyzxq=\r\n")), "{heads:?}");
    assert!(heads[0].contains("\r\nauthorization: basic") && !heads[1].contains("\r\nauthorization:"), "{heads:?}");
}

#[tokio::test]
async fn an_encrypted_server_is_reached_by_a_tunnel() {
    let server = Server::encrypted(|call| call.ok(b"by tunnel"));
    let trusted = vec![record(server.certificate.as_deref().expect("TLS"), None)];
    let pem = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(pem.path(), server.certificate.as_deref().expect("TLS")).expect("written");
    let client = client_with(|config| config.extra_ca = vec![pem.path().to_owned()]);
    let proxy = Server::plain(connect);
    let spec = through(&proxy.url("").replace("http://", "http://user:secret@"));
    let request = with(&server.url("/x").replace("https://", "https://u:p@"), &spec);
    assert_eq!(text(&client, &request).await.as_deref(), Ok("by tunnel"));
    let head = &heads(&proxy)[0];
    assert!(head.starts_with(&format!("connect {} http/1.1\r\n", server.address)), "{head}");
    assert!(head.contains("proxy-authorization: basic dxnlcjpzzwnyzxq=\r\n"), "{head}");
    let inside = &heads(&server)[0];
    assert!(inside.starts_with("get /x http/1.1\r\n") && !inside.contains("proxy-"), "{inside}");
    assert!(!head.contains("\r\nauthorization") && inside.contains("\r\nauthorization: basic"), "{head} {inside}");

    // A proxy that is itself spoken to over TLS: one tunnel in another.
    let proxy = Server::encrypted(|call| call.send("HTTP/1.1 403 No\r\nContent-Length: 3\r\n\r\nno!"));
    std::fs::write(pem.path(), proxy.certificate.as_deref().expect("TLS")).expect("written");
    let client = client_with(|config| config.extra_ca = vec![pem.path().to_owned()]);
    let request = with(&server.url("/x"), &TransportSpec { certificates: trusted, ..through(&proxy.url("")) });
    let error = client.open(&request, &Ask::default()).await.expect_err("refused");
    assert_eq!(
        (error.kind(), error.to_string()),
        (ErrorKind::Denied, format!("proxy `{}` answered with status 403", proxy.address))
    );
}

#[tokio::test]
async fn bad_proxies_are_told_from_bad_servers() {
    let cases: [(&str, &str, ErrorKind); 6] = [
        ("HTTP/1.1 407 Login\r\n\r\n", "answered with status 407", ErrorKind::Denied),
        ("HTTP/1.1 502 Bad\r\nContent-Length: 1\r\n\r\nx", "answered with status 502", ErrorKind::Server),
        ("HTTP/1.1 200 Ok\r\n\r\nand more", "made no connection: it speaks for the server", ErrorKind::Server),
        ("SSH-2.0\r\n\r\n", "made no connection: its answer is no HTTP", ErrorKind::Server),
        ("HTTP/1.1 200 O", "made no connection", ErrorKind::Server),
        ("", "made no connection", ErrorKind::Server),
    ];
    for (answer, expected, kind) in cases {
        let proxy = Server::plain(move |call| call.send(answer));
        let request = with("https://image.example/", &through(&proxy.url("")));
        let error = client().open(&request, &Ask::default()).await.expect_err(answer);
        assert_eq!(error.kind(), kind, "{answer}");
        let text = crate::rig::chain(&error);
        assert!(
            text.starts_with(&format!("proxy `{}` ", proxy.address)) && text.contains(expected),
            "{answer}: {text}"
        );
    }
    let endless = Server::plain(|call| {
        call.send("HTTP/1.1 200 OK\r\n");
        (0..20_000).for_each(|number| call.send(format!("X{number}: y\r\n")));
    });
    let error =
        text(&client(), &with("https://image.example/", &through(&endless.url("")))).await.expect_err("endless");
    assert!(error.contains("its answer is too long"), "{error}");
}

#[tokio::test]
async fn the_environment_names_proxies_and_profiles_overrule_it() {
    let (one, two) = (Server::plain(|call| call.ok(b"one")), Server::plain(|call| call.ok(b"two")));
    let vars = BTreeMap::from([("http_proxy", one.url("")), ("NO_PROXY", ".direct.example".to_owned())]);
    let proxies = EnvProxies::from_vars(|name| vars.get(name).cloned()).expect("proxies");
    let client = client_with(|config| config.proxies = proxies);
    let direct = Server::plain(|call| call.ok(b"direct"));
    assert_eq!(text(&client, &get("http://image.example/")).await.as_deref(), Ok("one"));
    assert_eq!(text(&client, &with("http://image.example/", &through(&two.url("")))).await.as_deref(), Ok("two"));
    assert_eq!(text(&client, &get(&direct.url("/"))).await.as_deref(), Ok("direct"), "loopback is asked directly");
    let off = text(&client, &with("http://image.invalid/", &through("off"))).await.expect_err("no such host");
    assert!(off.starts_with("failed to resolve host `image.invalid`"), "{off}");
    // An explicit proxy is for all.
    assert_eq!(text(&client, &with(&direct.url("/"), &through(&two.url("")))).await.as_deref(), Ok("two"));
}
