//! Spans of traces, as collectors of OpenTelemetry take them.
//!
//! Generated from `otlp/trace.proto`.

#![allow(missing_docs, clippy::allow_attributes_without_reason, reason = "generated from otlp/trace.proto")]

include!("../generated/opentelemetry.proto.collector.trace.v1.rs");
