use hyper::header::HeaderValue;

use super::*;

const XZ: &[u8] = b"\xfd7zXZ\0 and so on";
const GZIP: &[u8] = b"\x1f\x8b\x08 and so on";

fn of(encodings: &[&'static str], places: &[&str]) -> Result<Option<Label>, FetchError> {
    let headers =
        encodings.iter().map(|value| (CONTENT_ENCODING, HeaderValue::from_static(value))).collect::<HeaderMap>();
    let places: Vec<_> = places.iter().map(|place| Url::parse(place).expect("a URL")).collect();
    label(&headers, &places.iter().collect::<Vec<_>>())
}

#[test]
fn an_encoding_may_be_a_label_where_the_name_is_of_a_compressed_file() {
    for nothing in [&[][..], &[""], &["identity"], &["identity", "Identity, "]] {
        assert_eq!(of(nothing, &["http://h/x.gz"]).expect("plain"), None, "{nothing:?}");
    }
    for (encoding, place, own) in [
        ("gzip", "http://h/dir.d/x.qcow2.gz?sig=x.xz", Compression::Gzip),
        ("X-GZip", "http://h/x.TGZ", Compression::Gzip),
        ("x-xz", "http://h/x.xz", Compression::Xz),
        ("gzip", "http://h/x.xz", Compression::Xz),
        ("zstd", "http://h/x.zst", Compression::Zstd),
        ("x-bzip2", "http://h/x.bz2", Compression::Bzip2),
    ] {
        let found = of(&[encoding], &[place]).expect(place).expect("a label");
        assert_eq!((found.encoding, found.own), (format!("content-encoding: {encoding}"), vec![own]), "{place}");
    }
    // A redirect may lead to a name that says nothing.
    for places in [["http://h/x.gz", "http://cdn/0123"], ["http://h/latest", "http://h/x.gz"]] {
        assert_eq!(of(&["gzip"], &places).expect("a label").expect("a label").own, [Compression::Gzip]);
    }
}

#[test]
fn any_other_encoding_is_refused() {
    let cases: [(&[&'static str], &[&str], &str); 8] = [
        (&["gzip"], &["http://h/x.qcow2"], "gzip"),
        (&["gzip"], &["http://h/x.gz/"], "gzip"),
        (&["gzip"], &["http://h/"], "gzip"),
        (&["gzip"], &[], "gzip"),
        (&["br"], &["http://h/x.gz"], "br"),
        (&["deflate"], &["http://h/x.gz"], "deflate"),
        (&["gzip, br"], &["http://h/x.gz"], "gzip, br"),
        (&["gzip", "gzip"], &["http://h/x.gz"], "gzip, gzip"),
    ];
    for (encodings, places, said) in cases {
        let error = of(encodings, places).expect_err(said).to_string();
        assert!(error.contains(&format!("(`content-encoding: {said}`)")), "{error}");
    }
    let headers = HeaderMap::from_iter([(TRANSFER_ENCODING, HeaderValue::from_static("gzip, chunked"))]);
    let place = Url::parse("http://h/x.gz").expect("a URL");
    let error = label(&headers, &[&place]).expect_err("not to be undone").to_string();
    assert!(error.contains("`transfer-encoding: gzip`"), "{error}");
}

/// Gives a byte at a time.
struct Slow(&'static [u8]);

impl Body for Slow {
    fn read<'a>(&'a mut self, room: &'a mut [u8]) -> BoxFuture<'a, Result<usize, FetchError>> {
        let count = self.0.len().min(room.len()).min(1);
        room[..count].copy_from_slice(&self.0[..count]);
        self.0 = &self.0[count..];
        async move { Ok(count) }.boxed()
    }
}

async fn all(mut body: Box<dyn Body>, room: usize) -> Result<Vec<u8>, FetchError> {
    let (mut all, mut room) = (Vec::new(), vec![0; room]);
    loop {
        match body.read(&mut room).await? {
            0 => return Ok(all),
            count => all.extend_from_slice(&room[..count]),
        }
    }
}

#[tokio::test]
async fn the_first_bytes_show_whether_it_is_the_file_itself() {
    let cases: [(&'static [u8], &str, bool); 7] = [
        (GZIP, "http://h/x.gz", true),
        (XZ, "http://h/x.xz", true),
        (b"\x1f\x8b", "http://h/x.gz", true),
        (GZIP, "http://h/x.xz", false),
        (b"QFI\xfb\0\0\0\x03", "http://h/x.gz", false),
        (b"\xfd7z", "http://h/x.xz", false),
        (b"", "http://h/x.gz", false),
    ];
    for (bytes, place, is_itself) in cases {
        for room in [1, 4, 1000] {
            let label = of(&["gzip"], &[place]).expect("a label").expect("a label");
            match all(label.judged(Box::new(Slow(bytes))), room).await {
                Ok(read) => assert!(is_itself && read == bytes, "{place}"),
                Err(error) => assert!(!is_itself && matches!(error, FetchError::Encoded { .. }), "{place}: {error}"),
            }
        }
    }
}
