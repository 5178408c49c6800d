use tonic::Status;

use super::*;

#[test]
fn a_line_says_what_why_and_what_to_do() {
    let call = |status| CtlError::Call { action: "pull image `x`".into(), cause: Refusal(status) };
    let lines: Vec<String> = [
        CtlError::Connect { socket: "/run/x.sock".into(), cause: io::ErrorKind::NotFound.into() },
        CtlError::Connect { socket: "/run/x.sock".into(), cause: io::ErrorKind::PermissionDenied.into() },
        call(Status::not_found("gone\n\u{1b}[31m")),
        call(Status::new(Code::Internal, "")),
        call(Status::unimplemented("")),
        CtlError::Command(EndError::Lost(None)),
        CtlError::Session(EndError::Lost(None)),
        CtlError::Ambiguous { text: "a".into(), found: vec!["b".into(), "c\u{1b}".into()] },
        CtlError::LeftBehind {
            pod: "web".into(),
            first: Box::new(call(Status::internal("no"))),
            undo: Box::new(CtlError::Deadline { action: "stop".into(), deadline: Duration::from_secs(3) }),
        },
    ]
    .iter()
    .map(|error| Line(error).to_string())
    .collect();
    insta::assert_snapshot!(lines.join("\n"), @r"
    failed to connect to controld at `/run/x.sock`: entity not found; is controld running? --socket says where
    failed to connect to controld at `/run/x.sock`: permission denied; are you root? the socket is for root only
    failed to pull image `x`: gone\n\u{1b}[31m
    failed to pull image `x`: Internal error
    failed to pull image `x`: Operation is not implemented or not supported; is that the socket of a controld of this version?
    failed to run the command: connection to the streaming server was lost; did controld restart? the command was killed with it; see `journalctl -u controld`
    session with the console failed: connection to the streaming server was lost; did controld restart? the machine runs on; see `journalctl -u controld`
    `a` is more than one: b, c\u{1b}; write NAMESPACE/NAME, or more of an id
    failed to pull image `x`: no; and `web` could not be removed again: failed to stop: no answer within 3 s; remove it with `virtletctl rm -f`
    ");
}
