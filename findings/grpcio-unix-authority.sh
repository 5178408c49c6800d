#!/bin/bash
# What:     a gRPC call by Python's grpcio 1.71.0 over a Unix socket to a server of Rust's h2 0.4.20 (tonic's and hyper's), as to any CRI endpoint that
#           is written in Rust
# Expected: that it comes to the server, as grpc-go's calls do and as it does to grpcio's own server.
# Seen:     RST_STREAM with PROTOCOL_ERROR, and the server's program never hears of it. grpcio sends the socket's path as `:authority`, its slashes percent-encoded,
#           which a registered name may have (RFC 3986, 3.2.2). The http crate takes no percent sign in a host.
# So:       a client in Python needs the option `grpc.default_authority`. What it is told names neither the field nor the reason.
source "$(dirname "$0")/lib.sh"
need cargo "install Rust 1.95 or later by rustup"
python_with grpcio==1.71.0

mkdir -p "$tmp/server/src"
cat >"$tmp/server/Cargo.toml" <<'TOML'
[package]
name = "server"
version = "0.0.0"
edition = "2024"

[dependencies]
h2 = "=0.4.20"
http = "=1.5.0"
tokio = { version = "1", features = ["macros", "net", "rt"] }
TOML
cat >"$tmp/server/src/main.rs" <<'RUST'
//! Answers each call with the status 12, and says what its authority is.

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let socket = std::env::args().nth(1).unwrap();
    let listener = tokio::net::UnixListener::bind(socket).unwrap();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        tokio::spawn(async move {
            let mut connection = h2::server::handshake(stream).await.unwrap();
            while let Some(Ok((request, mut respond))) = connection.accept().await {
                println!("asked of {}", request.uri().authority().map_or("nobody", |name| name.as_str()));
                let answer = http::Response::builder().header("content-type", "application/grpc").header("grpc-status", "12");
                respond.send_response(answer.body(()).unwrap(), true).unwrap();
            }
        });
    }
}
RUST
cargo build -q --manifest-path "$tmp/server/Cargo.toml" --target-dir "$tmp/target"
cat >"$tmp/call.py" <<'PYTHON'
import concurrent.futures, grpc, sys

def call(path, options=()):
    with grpc.insecure_channel("unix:" + path, options=options) as channel:
        try:
            channel.unary_unary("/a.B/C")(b"", timeout=20, wait_for_ready=True)
        except grpc.RpcError as error:
            return f"{error.code().name}: {error.details()}"

directory = sys.argv[1]
print("h2:", call(directory + "/h2.sock"))
print("h2, by another name:", call(directory + "/h2.sock", [("grpc.default_authority", "localhost")]).split(":")[0])
server = grpc.server(concurrent.futures.ThreadPoolExecutor(1))
server.add_insecure_port("unix:" + directory + "/grpcio.sock")
server.start()
print("grpcio:", call(directory + "/grpcio.sock").split(":")[0])
server.stop(0)
PYTHON
"$tmp/target/debug/server" "$tmp/h2.sock" >"$tmp/asked" &
said=$(timeout 60 "$python" "$tmp/call.py" "$tmp")
expect "what the client is told" "h2: INTERNAL: Received RST_STREAM with error code 1
h2, by another name: UNIMPLEMENTED
grpcio: UNIMPLEMENTED" "$said"
expect "what the server of h2 has heard" "asked of localhost" "$(cat "$tmp/asked")"
