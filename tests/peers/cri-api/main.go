// Prints the CRI of the k8s.io/cri-api module that kubelet is built with, as its Go code describes itself: a line for each call,
// field and value, in the form of the test that pins ours (proto/generate/tests/cri.rs). A case of the bed compares the two.
package main

import (
	"fmt"
	"strings"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
)

func main() {
	file := protodesc.ToFileDescriptorProto(runtime.File_staging_src_k8s_io_cri_api_pkg_apis_runtime_v1_api_proto)
	fmt.Println("package", file.GetPackage(), file.GetSyntax())
	for _, service := range file.GetService() {
		for _, call := range service.GetMethod() {
			fmt.Printf("%s.%s(%s%s) -> %s%s\n", service.GetName(), call.GetName(),
				stream(call.GetClientStreaming()), call.GetInputType(), stream(call.GetServerStreaming()), call.GetOutputType())
		}
	}
	enums("", file.GetEnumType())
	messages("", file.GetMessageType())
}

func stream(is bool) string {
	if is {
		return "stream "
	}
	return ""
}

func enums(within string, all []*descriptorpb.EnumDescriptorProto) {
	for _, kinds := range all {
		for _, value := range kinds.GetValue() {
			fmt.Printf("%s%s.%s = %d\n", within, kinds.GetName(), value.GetName(), value.GetNumber())
		}
	}
}

func messages(within string, all []*descriptorpb.DescriptorProto) {
	for _, message := range all {
		name := within + message.GetName()
		fmt.Printf("message %s\n", name)
		for _, field := range message.GetField() {
			label := strings.ToLower(strings.TrimPrefix(field.GetLabel().String(), "LABEL_"))
			kind := strings.ToLower(strings.TrimPrefix(field.GetType().String(), "TYPE_"))
			words := []string{label, kind}
			if field.GetTypeName() != "" {
				words = append(words, field.GetTypeName())
			}
			if field.OneofIndex != nil {
				words = append(words, "of", message.GetOneofDecl()[field.GetOneofIndex()].GetName())
			}
			fmt.Printf("%s.%s = %d %s, JSON %s\n", name, field.GetName(), field.GetNumber(), strings.Join(words, " "), field.GetJsonName())
		}
		for _, reserved := range message.GetReservedRange() {
			fmt.Printf("%s reserves %d to %d\n", name, reserved.GetStart(), reserved.GetEnd()-1)
		}
		enums(name+".", message.GetEnumType())
		messages(name+".", message.GetNestedType())
	}
}
