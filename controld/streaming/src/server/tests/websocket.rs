//! WebSocket clients, byte for byte.

use super::*;

/// A client's frame; a mask of zeros is one too.
fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    [&[kind, 0x80 | payload.len() as u8, 0, 0, 0, 0], payload].concat()
}

async fn connect(url: &str, protocol: &str) -> TcpStream {
    let (address, path) = url.strip_prefix("http://").and_then(|url| url.split_once('/')).expect("absolute");
    let mut stream = TcpStream::connect(address).await.expect("connect");
    let request = format!(
        "GET /{path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: {protocol}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.expect("write");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(soon(stream.read_u8()).await.expect("head"));
    }
    let head = String::from_utf8(head).expect("text");
    assert!(
        head.starts_with("HTTP/1.1 101 ") && head.contains(&format!("sec-websocket-protocol: {protocol}")),
        "{head}"
    );
    stream
}

/// The payload of the next frame, of this kind.
async fn next(stream: &mut TcpStream, kind: u8) -> Vec<u8> {
    let mut head = [0; 2];
    soon(stream.read_exact(&mut head)).await.expect("frame");
    let mut payload = vec![0; usize::from(head[1])];
    soon(stream.read_exact(&mut payload)).await.expect("payload");
    assert_eq!(head[0], kind, "{payload:?}");
    payload
}

#[tokio::test]
async fn a_console_is_typed_into_and_left() {
    let (backend, mut seen) = Fake::new(Does::Echo);
    let server = server(backend).await;
    let mut stream = connect(&server.attach_url(request(true, false)).expect("url"), "v5.channel.k8s.io").await;
    assert_eq!(next(&mut stream, 0x82).await, [1]);
    let size = frame(0x82, b"\x04{\"Width\":132,\"Height\":43}");
    stream.write_all(&[size, frame(0x82, b"\x00ls"), frame(0x89, b"?")].concat()).await.expect("write");
    let mut answers = [soon(stream.read_u8()).await.expect("answer"), 0];
    // The pong may come before the echo or after it.
    for kind in &mut answers[..1] {
        let len = soon(stream.read_u8()).await.expect("length");
        let mut payload = vec![0; usize::from(len)];
        soon(stream.read_exact(&mut payload)).await.expect("payload");
        assert_eq!(payload, if *kind == 0x8a { &b"?"[..] } else { b"\x01ls" });
    }
    if answers[0] == 0x8a {
        assert_eq!(next(&mut stream, 0x82).await, b"\x01ls");
    } else {
        assert_eq!(next(&mut stream, 0x8a).await, b"?");
    }
    assert_eq!(soon(seen.recv()).await, Some(Event::Size(TermSize { width: 132, height: 43 })));
    stream.write_all(&frame(0x82, b"\xff\x00")).await.expect("write");
    assert_eq!(
        next(&mut stream, 0x82).await,
        br#".{"status":"Success"}"#.map(|byte| if byte == b'.' { 3 } else { byte })
    );
    assert_eq!(next(&mut stream, 0x88).await, 1000_u16.to_be_bytes());
}

#[tokio::test]
async fn a_client_that_closes_ends_its_session() {
    let (backend, mut seen) = Fake::new(Does::Nothing);
    let server = server(backend).await;
    let mut stream = connect(&server.attach_url(request(true, false)).expect("url"), "v4.channel.k8s.io").await;
    assert_eq!(next(&mut stream, 0x82).await, [1]);
    assert_eq!(soon(seen.recv()).await, Some(Event::Attached));
    stream.write_all(&frame(0x88, b"\x03\xe8")).await.expect("write");
    assert_eq!(soon(seen.recv()).await, Some(Event::Ended));
    assert_eq!(next(&mut stream, 0x88).await, 1000_u16.to_be_bytes());
}

#[tokio::test]
async fn a_command_that_fails_is_told_in_base64() {
    let server = server(Fake::new(Does::Exit(3)).0).await;
    let url = server.exec_url(command(&["ls"])).expect("url");
    let mut stream = connect(&url, "base64.channel.k8s.io").await;
    assert_eq!(next(&mut stream, 0x81).await, b"1");
    assert_eq!(next(&mut stream, 0x81).await, b"2bHM=");
    let said = next(&mut stream, 0x81).await;
    assert_eq!(said, b"3Y29tbWFuZCB0ZXJtaW5hdGVkIHdpdGggbm9uLXplcm8gZXhpdCBjb2RlOiAz");
    assert_eq!(next(&mut stream, 0x88).await, 1000_u16.to_be_bytes());
}

#[tokio::test]
async fn ports_are_channels() {
    let (pod, backend) = forward::pod().await;
    let server = Server::bind(config(), backend).await.expect("bind");
    let wanted = PortForwardRequest { pod_id: "p1".into(), ports: vec![80, 80] };
    let mut stream = connect(&server.port_forward_url(wanted).expect("url"), "v4.channel.k8s.io").await;
    for channel in 0..4 {
        assert_eq!(next(&mut stream, 0x82).await, [channel, 80, 0], "port 80 as the first message on each");
    }
    let (mut one, _) = soon(pod.accept()).await.expect("accept");
    let (mut two, _) = soon(pod.accept()).await.expect("accept");
    one.write_all(b"hello").await.expect("write");
    let hello = next(&mut stream, 0x82).await;
    assert!(hello[0] % 2 == 0 && hello[1..] == *b"hello", "{hello:?}");
    stream.write_all(&frame(0x82, &[hello[0], b'y', b'o'])).await.expect("write");
    let mut word = [0; 2];
    soon(one.read_exact(&mut word)).await.expect("word");
    assert_eq!(&word, b"yo");
    one.shutdown().await.expect("end");
    two.shutdown().await.expect("end");
    assert_eq!(next(&mut stream, 0x88).await, 1000_u16.to_be_bytes(), "the last connection ends the session");
}

#[tokio::test]
async fn ports_in_channels_are_those_of_the_request() {
    let (_pod, backend) = forward::pod().await;
    let server = Server::bind(config(), backend).await.expect("bind");
    for ports in [0, 33] {
        let wanted = PortForwardRequest { pod_id: "p1".into(), ports: vec![80; ports] };
        let url = server.port_forward_url(wanted).expect("url");
        let connecting = tokio::spawn(async move { connect(&url, "v4.channel.k8s.io").await });
        assert!(soon(connecting).await.expect_err("400").to_string().contains("400"), "{ports}");
    }
}
