#!/bin/bash
# What:     a gRPC call with `grpc-timeout` to a server of grpc-go 1.83.2 (containerd, CRI-O, kubelet's plugins), whose handler is busy a moment longer than that;
#           the frames as a client of HTTP/2 sees them (Python's h2 4.3.0), and what grpc-go's own client makes of them
# Expected: an answer with the status DEADLINE_EXCEEDED.
# Seen:     no answer: the server's timer resets the stream with CANCEL, before and instead of a status. grpc-go's client says DEADLINE_EXCEEDED all the same, as
#           it looks at its own clock when a stream is reset so.
# So:       by gRPC's table CANCEL is CANCELLED, and to a proxy it looks like a server that broke off. Who passes calls on needs a clock of its own for
#           the client's deadline, or tells the client something else than the server alone would.
source "$(dirname "$0")/lib.sh"
python_with h2==4.3.0
go_build grpc google.golang.org/grpc@v1.83.2 <<'GO'
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// Is amid something at the deadline.
func handle(_ any, stream grpc.ServerStream) error {
	<-stream.Context().Done()
	time.Sleep(2 * time.Second)
	return status.FromContextError(stream.Context().Err()).Err()
}

func main() {
	if os.Args[1] == "serve" {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		fmt.Println(listener.Addr())
		panic(grpc.NewServer(grpc.UnknownServiceHandler(handle)).Serve(listener))
	}
	connection, err := grpc.NewClient(os.Args[2], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		panic(err)
	}
	bound, stop := context.WithTimeout(context.Background(), time.Second)
	defer stop()
	err = connection.Invoke(bound, "/a.B/Busy", &emptypb.Empty{}, &emptypb.Empty{})
	fmt.Println("grpc-go's client:", status.Code(err))
}
GO
cat >"$tmp/raw.py" <<'PYTHON'
import socket, sys
import h2.config, h2.connection, h2.events

host, port = sys.argv[1].split(":")
connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding="utf-8"))
wire = socket.create_connection((host, int(port)), timeout=20)
connection.initiate_connection()
headers = {":method": "POST", ":scheme": "http", ":path": "/a.B/Busy", ":authority": "localhost", "te": "trailers",
           "content-type": "application/grpc", "grpc-timeout": "500m"}
connection.send_headers(1, list(headers.items()))
connection.send_data(1, bytes(5), end_stream=True)
wire.sendall(connection.data_to_send())
while True:
    for event in connection.receive_data(wire.recv(65536)):
        if isinstance(event, (h2.events.ResponseReceived, h2.events.TrailersReceived)):
            status = dict(event.headers).get("grpc-status")
            print("headers, grpc-status", status)
        if isinstance(event, h2.events.StreamReset):
            print("reset, error code", int(event.error_code))
        if isinstance(event, (h2.events.StreamReset, h2.events.StreamEnded)):
            sys.exit()
    wire.sendall(connection.data_to_send())
PYTHON
"$tmp/grpc" serve >"$tmp/address" &
for _ in $(seq 100); do
	[ -s "$tmp/address" ] && break
	sleep 0.1
done
address=$(cat "$tmp/address")
expect "a handler that is busy" "reset, error code 8" "$(timeout 60 "$python" "$tmp/raw.py" "$address")"
expect "the same call by grpc-go's client" "grpc-go's client: DeadlineExceeded" "$(timeout 60 "$tmp/grpc" call "$address")"
