//! Logins of sources.

use std::fs;

use serde_json::json;

use crate::rig::{Bed, Server, disk, sha512};

#[tokio::test]
async fn a_login_of_a_mirror_goes_to_its_server_and_no_other() {
    // base64 of `me:secret`
    const LOGIN: &str = "bWU6c2VjcmV0";
    let (here, there) = (disk(1, 64 * 1024), disk(2, 64 * 1024));
    let sums = [sha512(&here), sha512(&there)];
    let elsewhere = Server::plain(move |call| call.ok(&there));
    let url = elsewhere.url("/el8.qcow2");
    let server = Server::plain(move |call| match call.path().to_owned().as_str() {
        _ if !call.head.contains(LOGIN) => call.send("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"),
        "/repo.metadata" => {
            let base = format!("http://{}/files", call.tcp.local_addr().expect("an address"));
            let versions =
                |name: &str| json!({ "versions": { "v1": { "source": "s", "handle": name, "timestamp": 1 } } });
            let document = json!({
                "name": "office", "sources": { "s": { "type": "http", "args": { "baseurl": base } } },
                "templates": { "el7": versions("el7.qcow2"), "el8": versions("el8.qcow2") },
            });
            call.ok(document.to_string().as_bytes());
        }
        "/files/el7.qcow2.metadata" => call.ok(json!({ "checksum": sums[0] }).to_string().as_bytes()),
        "/files/el8.qcow2.metadata" => call.ok(json!({ "checksum": sums[1] }).to_string().as_bytes()),
        "/files/el7.qcow2" => call.ok(&here),
        "/files/el8.qcow2" => call.redirect(&url),
        _ => call.send("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"),
    });
    let bed = Bed::with("http://unused.example/", |config| {
        let file = config.root.with_file_name("login");
        fs::write(&file, "me:secret\n").expect("written");
        let settings = json!({
            "type": "lago", "id": "office", "uri": server.url("/repo.metadata"), "transport": { "login_file": file },
        });
        config.providers = vec![serde_json::from_value(settings).expect("settings")];
    });
    bed.store.pull("el7").await.expect("let in");
    bed.store.pull("el8").await.expect("let in, and sent elsewhere");
    let asked = elsewhere.requests.lock().expect("sound").concat();
    assert!(asked.contains("GET /el8.qcow2") && !asked.to_lowercase().contains("authorization"), "{asked}");
}
