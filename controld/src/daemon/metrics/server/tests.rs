//! Raw bytes at the port: right requests, wrong ones, and none.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

/// Whatever should have happened did not.
const SOON: Duration = Duration::from_secs(20);

async fn server(limits: Limits) -> Server {
    let written = AtomicUsize::new(0);
    let render = Box::new(move || Ok(format!("text {}\n# EOF\n", written.fetch_add(1, Ordering::Relaxed))));
    Server::bind(([127, 0, 0, 1], 0).into(), limits, render).await.expect("bound")
}

async fn connect(server: &Server) -> TcpStream {
    timeout(SOON, TcpStream::connect(server.address())).await.expect("soon").expect("connected")
}

/// All that the server says until it hangs up; a reset is an end, too.
async fn rest(mut stream: TcpStream) -> String {
    let mut all = Vec::new();
    let _ = timeout(SOON, stream.read_to_end(&mut all)).await.expect("the server hangs up");
    String::from_utf8_lossy(&all).into_owned()
}

async fn ask(server: &Server, request: &str) -> String {
    let mut stream = connect(server).await;
    // The server may have had enough before the end.
    let _ = timeout(SOON, stream.write_all(request.as_bytes())).await.expect("soon");
    rest(stream).await
}

async fn scrape(server: &Server) -> String {
    ask(server, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await
}

#[tokio::test]
async fn get_metrics_is_answered_and_nothing_else() {
    let server = server(Limits::default()).await;
    let page = scrape(&server).await;
    let (head, body) = page.split_once("\r\n\r\n").expect("a head and a body");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains(&format!("content-type: {OPENMETRICS}")), "{head}");
    assert!(head.contains("connection: close"), "{head}");
    assert_eq!(body, "text 0\n# EOF\n");
    for (line, status) in [
        ("GET /metrics?x=y HTTP/1.1", "200 "),
        ("GET /metrics HTTP/1.0", "200 "),
        ("GET / HTTP/1.1", "404 "),
        ("GET /metrics/ HTTP/1.1", "404 "),
        ("GET /Metrics HTTP/1.1", "404 "),
        ("GET /../metrics HTTP/1.1", "404 "),
        ("POST / HTTP/1.1", "404 "),
        ("POST /metrics HTTP/1.1", "405 "),
        ("HEAD /metrics HTTP/1.1", "405 "),
        ("DELETE /metrics HTTP/1.1", "405 "),
        ("OPTIONS /metrics HTTP/1.1", "405 "),
        ("GET * HTTP/1.1", "404 "),
        ("GET /metrics HTTP/9.9", "400 "),
        ("GET /metrics", "400 "),
    ] {
        let answer = ask(&server, &format!("{line}\r\nHost: x\r\n\r\n")).await;
        let said = answer.split_once(' ').unwrap_or_default().1;
        assert!(said.starts_with(status), "{line}: {answer}");
        assert_eq!(answer.contains("allow: GET"), status == "405 ", "{line}: {answer}");
    }
}

#[tokio::test]
async fn what_is_no_request_is_cut_off_and_others_are_served() {
    let server = server(Limits::default()).await;
    let fields = "a: b\r\n".repeat(MAX_HEADERS + 1);
    for (what, bytes) in [
        ("a line without end", "G".repeat(1 << 20)),
        ("a URL without end", format!("GET /{}", "x".repeat(1 << 20))),
        ("a huge field", format!("GET /metrics HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(1 << 20))),
        ("many fields", format!("GET /metrics HTTP/1.1\r\n{fields}\r\n")),
        ("garbage", "\u{0}\u{1}\u{2}\r\n\r\n".into()),
        ("TLS", "\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}\u{0}\r\n".into()),
        ("HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into()),
        ("two lengths", "GET /metrics HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n".into()),
    ] {
        let answer = ask(&server, &bytes).await;
        assert!(!answer.contains(" 200 ") && !answer.contains("text "), "{what}: {answer}");
        assert!(scrape(&server).await.contains(" 200 "), "after {what}");
    }
}

#[tokio::test]
async fn requests_behind_the_first_are_not_read() {
    let server = server(Limits::default()).await;
    let both = ask(&server, &"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n".repeat(2)).await;
    assert_eq!(both.matches("HTTP/1.1 ").count(), 1, "{both}");
}

#[tokio::test]
async fn slow_clients_have_a_deadline_and_hold_nobody_up_for_longer() {
    let limits = Limits { connections: 2, deadline: Duration::from_secs(1) };
    let server = server(limits).await;
    let mut silent = Vec::new();
    for beginning in ["", "GET /metrics HT", "GET /metrics HTTP/1.1\r\nHost: x\r\n", ""] {
        let mut stream = connect(&server).await;
        stream.write_all(beginning.as_bytes()).await.expect("taken");
        silent.push(stream);
    }
    // All places are theirs; it waits until they are thrown out.
    assert!(scrape(&server).await.contains(" 200 "));
    for stream in silent {
        assert_eq!(rest(stream).await, "", "thrown out without an answer");
    }
}

#[tokio::test]
async fn many_clients_at_once_are_all_served() {
    let limits = Limits { connections: 4, deadline: SOON };
    let server = Arc::new(server(limits).await);
    let clients: Vec<_> = (0..100)
        .map(|_| {
            let server = server.clone();
            tokio::spawn(async move { scrape(&server).await })
        })
        .collect();
    for client in clients {
        assert!(client.await.expect("ran").contains(" 200 "));
    }
}

#[tokio::test]
async fn texts_are_written_one_at_a_time_even_for_clients_that_left() {
    let (entered, entries) = std::sync::mpsc::channel();
    let (leave, gate) = std::sync::mpsc::channel::<()>();
    let gate = std::sync::Mutex::new(gate);
    let render = Box::new(move || {
        entered.send(()).expect("heard");
        gate.lock().expect("not poisoned").recv().expect("told");
        Ok(String::from("# EOF\n"))
    });
    let limits = Limits { connections: 8, deadline: SOON };
    let server = Server::bind(([127, 0, 0, 1], 0).into(), limits, render).await.expect("bound");
    let mut first = connect(&server).await;
    first.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("taken");
    let entries = tokio::task::spawn_blocking(move || {
        entries.recv_timeout(SOON).expect("the first text is begun");
        entries
    });
    let entries = entries.await.expect("ran");
    drop(first);
    let server = Arc::new(server);
    let second = tokio::spawn({
        let server = server.clone();
        async move { scrape(&server).await }
    });
    // Answered at once, so the second is well on its way.
    assert!(ask(&server, "GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.contains(" 404 "));
    assert!(entries.try_recv().is_err(), "two at a time");
    leave.send(()).expect("waited for");
    leave.send(()).expect("waited for");
    assert!(second.await.expect("ran").contains(" 200 "));
}

#[tokio::test]
async fn a_text_that_cannot_be_written_is_said() {
    for render in [Box::new(|| Err(fmt::Error)) as Render, Box::new(|| panic!("a bug"))] {
        let server = Server::bind(([127, 0, 0, 1], 0).into(), Limits::default(), render).await.expect("bound");
        assert!(scrape(&server).await.starts_with("HTTP/1.1 500 "));
    }
}

#[tokio::test]
async fn an_address_that_is_taken_is_named_with_its_key() {
    let first = server(Limits::default()).await;
    let render = Box::new(|| Ok(String::new()));
    let error = Server::bind(first.address(), Limits::default(), render).await.expect_err("taken");
    let text = error.to_string();
    assert!(text.contains(&first.address().to_string()) && text.contains("`metrics.address`"), "{text}");
}

#[tokio::test]
async fn dropping_it_ends_its_connections() {
    let server = server(Limits { deadline: SOON * 10, ..Limits::default() }).await;
    let stream = connect(&server).await;
    // Accepted, as the one behind it is answered.
    assert!(scrape(&server).await.contains(" 200 "));
    drop(server);
    assert_eq!(rest(stream).await, "");
}
