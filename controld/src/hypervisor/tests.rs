use tokio::time::Instant;

use super::press::Press;
use super::*;

fn hypervisor(link: Link) -> (Hypervisor, watch::Sender<Link>) {
    let (sender, link) = watch::channel(link);
    let shared = Shared {
        uri: "test:///default".to_owned(),
        link,
        wanted: Arc::default(),
        start_deadline: Duration::ZERO,
        presses: Presses::default(),
        aborts: Presses::default(),
        policy: Policy::default(),
        offering: tokio::sync::Mutex::default(),
    };
    (Hypervisor { shared: Arc::new(shared) }, sender)
}

#[tokio::test(start_paused = true)]
async fn kubelet_is_not_told_of_a_libvirtd_that_is_started_again() {
    let (hypervisor, link) = hypervisor(Link::Down { cause: None, lost: Some(Instant::now()) });
    hypervisor.serves().await.expect("it was there a moment ago");
    hypervisor.ready().expect_err("it is not there");
    tokio::time::advance(RETURNS).await;
    hypervisor.serves().await.expect_err("it stays away");

    link.send_replace(Link::Down { cause: None, lost: None });
    let began = Instant::now();
    hypervisor.serves().await.expect_err("it was never there");
    assert_eq!(began.elapsed(), FIRST, "our start is waited for");
    let cause = LibvirtError { code: 38, message: "no such file".to_owned() };
    link.send_replace(Link::Down { cause: Some(cause), lost: None });
    let began = Instant::now();
    hypervisor.serves().await.expect_err("it was never there");
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_save_that_is_still_being_ended_is_not_ended_once_more() {
    let (hypervisor, _link) = hypervisor(Link::Down { cause: None, lost: None });
    let id = Uuid::from_u128(1);
    let first = Press::begin(&hypervisor.shared.aborts, id).expect("the first");
    let refused = hypervisor.end_save(id).await.expect_err("libvirt has not answered");
    assert!(refused.to_string().contains("has not answered"), "{refused}");
    drop(first);
    let refused = hypervisor.end_save(id).await.expect_err("libvirt is not there");
    assert!(refused.to_string().contains("no connection"), "{refused}");
    assert!(Press::begin(&hypervisor.shared.aborts, id).is_some(), "nothing is under way");
}

#[test]
fn a_machine_has_one_press_at_a_time() {
    let presses = Presses::default();
    let [one, other] = [1, 2].map(Uuid::from_u128);
    let first = Press::begin(&presses, one).expect("the first");
    assert!(Press::begin(&presses, one).is_none());
    assert!(Press::begin(&presses, other).is_some());
    drop(first);
    assert!(Press::begin(&presses, one).is_some());
}
