//! Where no connection goes, however it is spelt.

use imagestore::net::{Ask, TransportSpec};
use vmimage::error::ErrorKind;

use crate::asking::{client, client_with, get, text, with};
use crate::rig::Server;

#[tokio::test]
async fn no_spelling_leads_to_a_closed_address() {
    let server = Server::plain(|call| call.ok(b"inside"));
    let port = server.address.port();
    let closed = client_with(|config| config.policy.allow_loopback = false);
    let by_list = client_with(|config| {
        config.policy.deny = vec!["127.0.0.0/8".parse().expect("a net"), "::1/128".parse().expect("a net")]
    });
    for host in [
        "127.0.0.1",
        "127.1",
        "0177.0.0.1",
        "0x7f.1",
        "2130706433",
        "0x7f000001",
        "017700000001",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::7f00:1]",
        "[64:ff9b::127.0.0.1]",
        "localhost",
        "%31%32%37.0.0.1",
        "127。0。0。1",
    ] {
        for client in [&closed, &by_list] {
            let error = client.open(&get(&format!("http://{host}:{port}/")), &Ask::default()).await.expect_err(host);
            assert_eq!(error.kind(), ErrorKind::Denied, "{host}: {error}");
            assert!(error.to_string().ends_with("to which no download may go"), "{host}: {error}");
            assert!(!error.is_unreachable(), "{host}");
        }
    }
    assert_eq!(server.hits(), 0);
}

#[tokio::test]
async fn every_hop_is_judged() {
    let server = Server::plain(|call| call.redirect("http://[::1]:1/"));
    let client = client_with(|config| config.policy.deny = vec!["::1/128".parse().expect("a net")]);
    let error = text(&client, &get(&server.url("/"))).await.expect_err("closed");
    assert_eq!(error, "host `[::1]` has the address ::1, to which no download may go");
    assert_eq!(server.hits(), 1);
}

#[tokio::test]
async fn a_proxy_may_be_on_this_machine_but_leads_to_no_closed_address() {
    let proxy = Server::plain(|call| call.ok(b"by proxy"));
    let spec = TransportSpec { proxy: Some(proxy.url("")), ..TransportSpec::default() };
    let closed = client_with(|config| config.policy.allow_loopback = false);
    assert_eq!(text(&closed, &with("http://image.example/", &spec)).await.as_deref(), Ok("by proxy"));
    for url in ["http://127.1/", "http://[::1]/", "http://169.254.169.254/", "https://[::ffff:169.254.169.254]/"] {
        let error = closed.open(&with(url, &spec), &Ask::default()).await.expect_err(url);
        assert_eq!(error.kind(), ErrorKind::Denied, "{url}: {error}");
    }
    assert_eq!(proxy.hits(), 1);
    // What nobody may connect to is no proxy either, nor what the operator closed.
    for host in ["169.254.1.1", "0.0.0.0", "[fe80::1]"] {
        let spec = TransportSpec { proxy: Some(format!("http://{host}:3128")), ..TransportSpec::default() };
        let error = client().open(&with("http://image.example/", &spec), &Ask::default()).await.expect_err(host);
        assert_eq!(error.kind(), ErrorKind::Denied, "{host}: {error}");
    }
    let listed = client_with(|config| config.policy.deny = vec!["127.0.0.0/8".parse().expect("a net")]);
    assert!(
        text(&listed, &with("http://image.example/", &spec)).await.expect_err("closed").contains("no download may go")
    );
}
