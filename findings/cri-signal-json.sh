#!/bin/bash
# What:     k8s.io/cri-api 0.36.3 and 0.37.2, the enum Signal (ContainerConfig.stop_signal) by protobuf's own JSON
# Expected: a minor release of Kubernetes' CRI reads what the one before has written, as the API's version is `v1` in both: by gRPC, and
#           from a file in JSON too, as CRI tools take and print messages that way.
# Seen:     the values were renamed, SIGTERM is SIGNAL_SIGTERM now, with the same numbers. Bytes on the wire are the same; JSON
#           of either is refused by the other ("invalid value for enum field"). The number in JSON is read by both: 23, as the enum goes by
#           the alphabet and not by the kernel's numbers, by which 15 is SIGTERM.
# So:       what keeps CRI messages as JSON (records, fixtures, dumps) keeps signals by number, or knows both names.
source "$(dirname "$0")/lib.sh"

program='package main

import (
	"fmt"
	"io"
	"os"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func main() {
	input, _ := io.ReadAll(os.Stdin)
	message := &v1.ContainerConfig{}
	if err := (protojson.UnmarshalOptions{}).Unmarshal(input, message); err != nil {
		fmt.Println("refused")
		return
	}
	wire, _ := proto.Marshal(message)
	fmt.Printf("%d %s %x\n", message.StopSignal, message.StopSignal, wire)
}'
for version in 0.36.3 0.37.2; do go_build cri-$version k8s.io/cri-api@v$version <<<"$program"; done

reads() { timeout 20 "$tmp/cri-$1" <<<"{\"stopSignal\": $2}"; }
expect "0.36.3 reads its own name" "23 SIGTERM 900117" "$(reads 0.36.3 '"SIGTERM"')"
expect "0.36.3 reads the name of 0.37.2" refused "$(reads 0.36.3 '"SIGNAL_SIGTERM"')"
expect "0.37.2 reads its own name" "23 SIGNAL_SIGTERM 900117" "$(reads 0.37.2 '"SIGNAL_SIGTERM"')"
expect "0.37.2 reads the name of 0.36.3" refused "$(reads 0.37.2 '"SIGTERM"')"
expect "0.36.3 reads the number" "23 SIGTERM 900117" "$(reads 0.36.3 23)"
expect "0.37.2 reads the number" "23 SIGNAL_SIGTERM 900117" "$(reads 0.37.2 23)"
expect "15 is not SIGTERM" "15 SIGNAL_SIGPOLL 90010f" "$(reads 0.37.2 15)"
