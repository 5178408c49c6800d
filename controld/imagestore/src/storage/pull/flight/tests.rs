use super::*;

#[tokio::test]
async fn what_was_told_last_is_told_to_other_watchers_too() {
    let flights = Arc::new(Flights::default());
    // Whether the end is heard first is a matter of chance.
    for bytes in 1..100 {
        let flight = flights.join(&"key", |progress| async move {
            progress.send_replace(Progress { bytes, ..Progress::default() });
        });
        let (told, watcher) = watch::channel(Progress::default());
        assert_eq!(flight.outcome_with(&told).await, Some(()));
        assert_eq!(watcher.borrow().bytes, bytes);
    }
}
