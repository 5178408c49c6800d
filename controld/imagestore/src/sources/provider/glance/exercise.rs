//! For the fuzzer: the answers of Glance and of Keystone.

use url::Url;

use super::keystone::Grant;
use super::record::{Page, Record};

/// Reads bytes as a page of records, a record, and a token with its catalog.
///
/// # Panics
/// When a page leads to another server.
pub fn exercise(bytes: &[u8]) {
    let base = Url::parse("https://glance.test/v2/images").expect("a constant URL");
    if let Ok(page) = Page::parse(bytes) {
        if let Ok(Some(next)) = page.next(&base) {
            assert_eq!((next.origin(), next.path()), (base.origin(), base.path()), "another list");
        }
        page.images.iter().for_each(look);
    }
    if let Ok(record) = Record::parse(bytes) {
        look(&record);
    }
    if let Ok(grant) = Grant::parse(bytes) {
        drop(grant.images("public", None, &base));
    }
}

fn look(record: &Record) {
    let _told = (record.size(), record.age(), record.platform(), record.promise(), record.checked());
    drop(record.metadata("glance"));
}
