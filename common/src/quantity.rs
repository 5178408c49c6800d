//! Kubernetes quantities (`1.5Gi`, `100m`, `1e3`) as whole bytes: exact, rounded up as the API server does.
//!
//! The grammar is that of `resource.Quantity` in k8s.io/apimachinery: a signed decimal number, then nothing, a binary
//! suffix (`Ki` to `Ei`), a decimal one (`n u m k M G T P E`) or an exponent. All arithmetic is on decimal digits, so no
//! number is too long or too fine for it.

/// Largest quantity: the API's `int64`.
pub const MAX: u64 = i64::MAX as u64;
/// An exponent beyond this says no more than one at it.
const MAX_EXPONENT: i64 = 1000;

/// Why a text is not a number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuantityError {
    Malformed,
    Negative,
    /// Over [`MAX`].
    TooLarge,
}

/// What a suffix does to the number before it.
#[derive(Debug, Clone, Copy)]
enum Scale {
    /// Times ten to the power.
    Decimal(i64),
    /// Times two to the power.
    Binary(u32),
}

/// A number without its sign: 0.d₁d₂d₃... times ten to the power of `point`. The first digit is not zero.
struct Decimal {
    digits: Vec<u8>,
    point: i64,
}

/// The quantity in whole bytes.
///
/// # Errors
/// When the text is no quantity, or one below zero or over [`MAX`].
pub fn bytes(text: &str) -> Result<u64, QuantityError> {
    let (negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    let (number, suffix) = rest.split_at(end);
    let number = Decimal::parse(number).ok_or(QuantityError::Malformed)?;
    let scale = Scale::parse(suffix).ok_or(QuantityError::Malformed)?;
    if number.digits.is_empty() {
        return Ok(0);
    }
    if negative {
        return Err(QuantityError::Negative);
    }
    let value = match scale {
        Scale::Decimal(power) => Decimal { point: number.point + power, ..number }.times_power_of_two(0),
        Scale::Binary(power) => number.times_power_of_two(power),
    };
    value.filter(|value| *value <= MAX).ok_or(QuantityError::TooLarge)
}

// === impl Decimal ===

impl Decimal {
    fn parse(text: &str) -> Option<Self> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        if whole.len() + fraction.len() == 0 || fraction.contains('.') {
            return None;
        }
        let digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).map(|b| b - b'0').collect();
        let zeros = digits.iter().take_while(|digit| **digit == 0).count();
        let point = i64::try_from(whole.len()).ok()? - i64::try_from(zeros).ok()?;
        Some(Self { digits: digits.into_iter().skip(zeros).collect(), point })
    }

    /// The number times two to the power, rounded up. `None` if it does not fit.
    fn times_power_of_two(self, power: u32) -> Option<u64> {
        // 10^20 is over 2^64 whatever its digits are.
        if self.point > 20 {
            return None;
        }
        let before = usize::try_from(self.point).unwrap_or(0);
        let mut value: u128 = 0;
        for at in 0..before {
            value = value * 10 + u128::from(self.digits.get(at).copied().unwrap_or(0));
        }
        let mut fraction: Vec<u8> = self.digits.into_iter().skip(before).collect();
        // Zeros between the point and the first digit. Each doubling brings the digits at most one place up, so more
        // zeros than doublings make no difference.
        let zeros = usize::try_from(self.point.saturating_neg()).unwrap_or(0).min(power as usize);
        fraction.splice(0..0, std::iter::repeat_n(0, zeros));
        for _ in 0..power {
            value = value * 2 + u128::from(double(&mut fraction));
            if value > u128::from(u64::MAX) {
                return None;
            }
        }
        let up = u128::from(fraction.iter().any(|digit| *digit != 0));
        u64::try_from(value + up).ok()
    }
}

/// Doubles a decimal fraction and returns what comes out before the point, 0 or 1.
fn double(fraction: &mut [u8]) -> u8 {
    fraction.iter_mut().rev().fold(0, |carry, digit| {
        let doubled = *digit * 2 + carry;
        *digit = doubled % 10;
        doubled / 10
    })
}

// === impl Scale ===

impl Scale {
    fn parse(suffix: &str) -> Option<Self> {
        Some(match suffix {
            "n" => Self::Decimal(-9),
            "u" => Self::Decimal(-6),
            "m" => Self::Decimal(-3),
            "" => Self::Decimal(0),
            "k" => Self::Decimal(3),
            "M" => Self::Decimal(6),
            "G" => Self::Decimal(9),
            "T" => Self::Decimal(12),
            "P" => Self::Decimal(15),
            "E" => Self::Decimal(18),
            "Ki" => Self::Binary(10),
            "Mi" => Self::Binary(20),
            "Gi" => Self::Binary(30),
            "Ti" => Self::Binary(40),
            "Pi" => Self::Binary(50),
            "Ei" => Self::Binary(60),
            exponent => Self::Decimal(exponent_of(exponent.strip_prefix(['e', 'E'])?)?),
        })
    }
}

fn exponent_of(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let size = digits.parse().unwrap_or(MAX_EXPONENT).min(MAX_EXPONENT);
    Some(if text.starts_with('-') { -size } else { size })
}

#[cfg(test)]
mod tests;
