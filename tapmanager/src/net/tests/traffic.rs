//! What goes on while a pod is repaired, and what a guest that is not held to its identity is sent.

use std::io;
use std::net::TcpListener as StdListener;

use proto::tap::DataPath;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::stack::Stack;
use super::*;
use crate::net::filter::tests::{OTHER, ethernet_to, ipv6, ipv6_from};

const PATHS: [DataPath; 3] = DataPath::ALL;
/// How often the guards are replaced under a connection.
const REPLACED: usize = 40;
/// For all of it, on a machine that has other things to do.
const DEADLINE: Duration = Duration::from_secs(60);

/// The namespace has the guest's address too: a frame that its stack hears ends the connection by a reset.
#[test]
fn by_each_data_path_a_connection_outlives_the_replacement_of_its_guards() {
    for path in PATHS {
        apart(async || {
            let bed = Bed::new();
            ip("addr add 10.77.0.1/24 dev host0");
            let choices = |anti_spoof| Choices { data_path: path, queues: 1, anti_spoof };
            let faults = Arc::new(Faults::none());
            let nics = join(&bed.pod, &[bed.reported()], choices(false), &faults).await.expect("joined").nics;
            // The stack's resets need no ARP, which it would not hear answered.
            let known = "neigh replace 10.77.0.1 lladdr 02:00:00:00:00:01 nud permanent dev eth0";
            bed.pod.inside(|| ip(known)).expect("entered");
            let guest = Stack::behind(&bed, &nics).await;
            guest.netns.inside(|| ip("addr add 10.77.0.2/24 dev guest0")).expect("entered");
            let listener = guest.netns.inside(|| StdListener::bind("10.77.0.2:5000")).expect("entered").expect("bound");
            listener.set_nonblocking(true).expect("non-blocking");
            let listener = TcpListener::from_std(listener).expect("registered");

            let done = CancellationToken::new();
            let send = async {
                let (mut stream, mut sent) = (TcpStream::connect("10.77.0.2:5000").await?, 0);
                while !done.is_cancelled() {
                    stream.write_all(&[7; 4096]).await?;
                    sent += 4096;
                }
                stream.shutdown().await?;
                io::Result::Ok(sent)
            };
            let receive = async {
                let (mut stream, _) = listener.accept().await?;
                let (mut buf, mut received) = ([0; 65_536], 0);
                loop {
                    match stream.read(&mut buf).await? {
                        0 => return io::Result::Ok(received),
                        len => received += len,
                    }
                }
            };
            let replace = async {
                for turn in 0..REPLACED {
                    let made = repair(&bed.pod, &nics, choices(turn % 2 == 0), &faults).await.expect("repaired");
                    assert_eq!(made.len(), 2, "the guards of both ends and nothing else: {made:?}");
                }
                done.cancel();
                Ok(())
            };
            let all = timeout(DEADLINE, async { tokio::try_join!(send, receive, replace) }).await;
            let (sent, received, ()) = all.expect("in time").unwrap_or_else(|error| panic!("{path:?}: {error}"));
            assert_eq!(sent, received, "{path:?}");
            assert!(sent > 0, "{path:?}: nothing was under way");
        });
    }
}

#[test]
fn by_each_data_path_a_free_guest_is_sent_what_is_for_others_behind_it_and_its_networks_router() {
    for path in PATHS {
        apart(async || {
            let bed = Bed::new();
            bed.pod.inside(|| ip("addr del fd00:77::2/64 dev eth0")).expect("entered");
            let reported = Reported { addresses: vec!["10.77.0.2/24".parse().expect("an address")], ..bed.reported() };
            let (nested, router) = (
                ethernet_to(OTHER, FAR, 0x88b6, &[7; 46]),
                ethernet_to(
                    [0x33, 0x33, 0, 0, 0, 1],
                    FAR,
                    0x86dd,
                    &ipv6_from("fe80::1", ipv6(58, &[134, 0, 0, 0, 0, 0, 0, 0])),
                ),
            );
            for anti_spoof in [true, false] {
                let choices = Choices { data_path: path, queues: 1, anti_spoof };
                let faults = Arc::new(Faults::none());
                let nics =
                    join(&bed.pod, std::slice::from_ref(&reported), choices, &faults).await.expect("joined").nics;
                let events = bed.pod.inside(Events::here).expect("entered");
                let mut opened = open_taps(&bed.pod, &nics, false).await.expect("opened");
                if path != DataPath::Macvtap {
                    events.until_up(&["tap0".to_owned()]);
                }
                let guest = Wire::of_tap(opened.remove(0).queues.remove(0));
                for frame in [&nested, &router, &marker()] {
                    bed.far.send(frame).await;
                }
                let heard = guest.until_marker().await;
                let told = |frame: &Vec<u8>| heard.contains(frame);
                assert_eq!((told(&nested), told(&router)), (!anti_spoof, !anti_spoof), "{path:?}: {heard:02x?}");
                drop(guest);
                let gone = bed.pod.inside(Events::here).expect("entered");
                unjoin(&bed.pod).await.expect("unjoined");
                if path != DataPath::Macvtap {
                    bed.pod.inside(|| ip("link del tap0")).expect("entered");
                }
                gone.until_gone("tap0");
            }
        });
    }
}
