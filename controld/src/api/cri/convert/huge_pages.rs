//! Huge pages of a container: CRI names their size as the kernel's cgroups do, `2MB` or `1GB`, in powers of 1024.

use proto::cri::HugepageLimit;
use vmspec::HugePages;
use vmspec::error::Result;

use super::invalid;

const UNITS: [(&str, u64); 4] = [("KB", 1 << 10), ("MB", 1 << 20), ("GB", 1 << 30), ("B", 1)];

/// The huge pages that a container is to have. kubelet names every size that the node has, most of them with a limit of 0.
pub(super) fn of(limits: &[HugepageLimit]) -> Result<Option<HugePages>> {
    let mut wanted = limits.iter().filter(|limit| limit.limit > 0);
    let Some(HugepageLimit { page_size, limit }) = wanted.next() else { return Ok(None) };
    if let Some(other) = wanted.next() {
        let other = &other.page_size;
        return Err(invalid(format!(
            "huge pages of {page_size} and of {other}; a machine's memory has pages of one size"
        )));
    }
    let size = bytes(page_size)
        .ok_or_else(|| invalid(format!("`{page_size}` is no size of huge pages, such as `2MB` or `1GB`")))?;
    if limit % size != 0 {
        return Err(invalid(format!("{limit} bytes in huge pages are no multiple of {page_size}")));
    }
    Ok(Some(HugePages { size, bytes: *limit }))
}

/// The same as CRI says it.
pub(super) fn limit(pages: HugePages) -> HugepageLimit {
    let units = UNITS.into_iter().rev().skip(1).find(|(_, unit)| pages.size.is_multiple_of(*unit));
    let (name, unit) = units.unwrap_or(("B", 1));
    HugepageLimit { page_size: format!("{}{name}", pages.size / unit), limit: pages.bytes }
}

fn bytes(text: &str) -> Option<u64> {
    let (name, unit) = UNITS.into_iter().find(|(name, _)| text.ends_with(name))?;
    let number: u64 = text.strip_suffix(name)?.parse().ok()?;
    number.checked_mul(unit).filter(|size| size.is_power_of_two())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(all: &[(&str, u64)]) -> Vec<HugepageLimit> {
        all.iter().map(|(size, limit)| HugepageLimit { page_size: (*size).into(), limit: *limit }).collect()
    }

    #[test]
    fn sizes_are_read_as_kubelet_writes_them() {
        const GIB: u64 = 1 << 30;
        assert_eq!(of(&limits(&[("1GB", 0), ("2MB", 0), ("what", 0)])).expect("none"), None);
        for (text, size) in [("2MB", 2 << 20), ("1GB", GIB), ("64KB", 64 << 10)] {
            let pages = of(&limits(&[("1GB", 0), (text, 2 * GIB)])).expect(text).expect("some");
            assert_eq!(pages, HugePages { size, bytes: 2 * GIB });
            assert_eq!(limit(pages), HugepageLimit { page_size: text.into(), limit: 2 * GIB });
        }
    }

    #[test]
    fn what_no_machine_can_have_is_refused() {
        for (given, why) in [
            (&[("2MB", 4 << 20), ("1GB", 1 << 30)][..], "pages of one size"),
            (&[("2Mi", 4 << 20)], "`2Mi` is no size of huge pages"),
            (&[("3MB", 3 << 20)], "`3MB` is no size"),
            (&[("0MB", 1)], "`0MB` is no size"),
            (&[("99999999999999999999GB", 1)], "is no size"),
            (&[("2MB", 3 << 20)], "no multiple of 2MB"),
        ] {
            let refused = of(&limits(given)).expect_err(why).to_string();
            assert!(refused.contains(why), "{refused}");
        }
    }
}
