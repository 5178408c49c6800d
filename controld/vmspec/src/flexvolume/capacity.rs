//! Sizes of disks as Virtlet reads them: a whole number, with one of libvirt's units or, without one, megabytes.

/// Bytes; `None` if it is no size, or none that anything has.
pub(super) fn bytes(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(digits)?;
    let unit = match unit {
        "B" | "bytes" => 1,
        "" | "MB" => thousands(2),
        "KB" => thousands(1),
        "GB" => thousands(3),
        "TB" => thousands(4),
        "PB" => thousands(5),
        "EB" => thousands(6),
        "K" | "KiB" => 1 << 10,
        "M" | "MiB" => 1 << 20,
        "G" | "GiB" => 1 << 30,
        "T" | "TiB" => 1 << 40,
        "P" | "PiB" => 1 << 50,
        "E" | "EiB" => 1 << 60,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

const fn thousands(power: u32) -> u64 {
    1000_u64.pow(power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_a_number_with_a_unit_of_libvirts() {
        for (text, expected) in [
            ("1024", Some(1_024_000_000)),
            ("1024MB", Some(1_024_000_000)),
            ("1024M", Some(1 << 30)),
            ("1GiB", Some(1 << 30)),
            ("7bytes", Some(7)),
            ("15EiB", Some(15 << 60)),
            ("16EiB", None),
            ("99999999999999999999", None),
            ("", None),
            ("G", None),
            ("1g", None),
            ("1 G", None),
            ("1.5G", None),
            ("-1G", None),
            ("+1G", None),
            ("1Gi", None),
            ("1Ğ", None),
        ] {
            assert_eq!(bytes(text), expected, "{text}");
        }
    }
}
