//! The clock of a template: a civil time given by the caller, printed like Python's `strftime`.

use std::fmt::Write;

use fulmar_core::{Error, ErrorKind, Result};

const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS_OF_MONTH: [u32; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

/// A date and a time of day without a zone.
///
/// ```
/// use fulmar_template::CivilTime;
/// let time = CivilTime::parse("2024-07-06T03:04:05")?;
/// assert_eq!(time.strftime("%d %b %Y, %-I %p"), "06 Jul 2024, 3 AM");
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CivilTime {
    year: u32,
    month: u32,
    day: u32,
    hour: u32,
    minute: u32,
    second: u32,
    microsecond: u32,
}

impl CivilTime {
    /// Parses `YYYY-MM-DD`, `YYYY-MM-DDTHH:MM:SS`, or that with a fraction of up to six digits.
    ///
    /// # Errors
    /// `Malformed` for text of another form, `OutOfRange` for a day or an hour that does not exist.
    pub fn parse(text: &str) -> Result<Self> {
        let malformed = || {
            Error::new(ErrorKind::Malformed, format!("now must be like 2024-07-26T13:14:15: got {text:?}"))
        };
        let (date, time) = text.split_once(['T', ' ']).unwrap_or((text, "00:00:00"));
        let (clock, fraction) = time.split_once('.').unwrap_or((time, "0"));
        let [year, month, day] = numbers(date, '-', [4, 2, 2]).ok_or_else(malformed)?;
        let [hour, minute, second] = numbers(clock, ':', [2, 2, 2]).ok_or_else(malformed)?;
        if fraction.is_empty() || fraction.len() > 6 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
            return Err(malformed());
        }
        let microsecond = format!("{fraction:0<6}").parse().map_err(|_| malformed())?;
        let time = Self { year, month, day, hour, minute, second, microsecond };
        if time.exists() { Ok(time) } else { Err(Error::new(ErrorKind::OutOfRange, malformed().detail())) }
    }

    /// Formats the time by `format`, with the rules of Python's `strftime` in the C locale. Other text is
    /// copied.
    #[must_use]
    pub fn strftime(&self, format: &str) -> String {
        let mut text = String::with_capacity(format.len() * 2);
        let mut rest = format;
        while let Some(index) = rest.find('%') {
            text.push_str(&rest[..index]);
            let directive = &rest[index + 1..];
            let flag = directive.chars().next().filter(|c| "-_0^#".contains(*c));
            let name = directive.chars().nth(usize::from(flag.is_some()));
            let Some(name) = name else {
                text.push_str(&rest[index..]);
                return text;
            };
            let length = 1 + flag.map_or(0, char::len_utf8) + name.len_utf8();
            if !self.write_directive(&mut text, flag, name) {
                text.push_str(&rest[index..index + length]);
            }
            rest = &rest[index + length..];
        }
        text.push_str(rest);
        text
    }

    /// Writes one directive; returns `false` for an unknown one.
    fn write_directive(&self, text: &mut String, flag: Option<char>, name: char) -> bool {
        let hour12 = (self.hour + 11) % 12 + 1;
        let (value, width, pad) = match name {
            'd' => (self.day, 2, '0'),
            'e' => (self.day, 2, ' '),
            'm' => (self.month, 2, '0'),
            'y' => (self.year % 100, 2, '0'),
            'C' => (self.year / 100, 2, '0'),
            'Y' => (self.year, 1, '0'),
            'H' => (self.hour, 2, '0'),
            'k' => (self.hour, 2, ' '),
            'I' => (hour12, 2, '0'),
            'l' => (hour12, 2, ' '),
            'M' => (self.minute, 2, '0'),
            'S' => (self.second, 2, '0'),
            'f' => (self.microsecond, 6, '0'),
            'j' => (self.day_of_year(), 3, '0'),
            'w' => (self.weekday(), 1, '0'),
            'u' => ((self.weekday() + 6) % 7 + 1, 1, '0'),
            'U' => ((self.day_of_year() + 6 - self.weekday()) / 7, 2, '0'),
            'W' => ((self.day_of_year() + 6 - (self.weekday() + 6) % 7) / 7, 2, '0'),
            'V' => (self.iso_week().1, 2, '0'),
            'G' => (self.iso_week().0, 1, '0'),
            'g' => (self.iso_week().0 % 100, 2, '0'),
            _ => return self.write_text(text, flag, name),
        };
        let pad = match flag {
            Some('_') => ' ',
            Some('0') => '0',
            _ => pad,
        };
        let digits = value.to_string();
        let width = if flag == Some('-') { 0 } else { width };
        text.extend(std::iter::repeat_n(pad, usize::saturating_sub(width, digits.len())));
        text.push_str(&digits);
        true
    }

    fn write_text(&self, text: &mut String, flag: Option<char>, name: char) -> bool {
        let half = if self.hour < 12 { "AM" } else { "PM" };
        let weekday = WEEKDAYS[self.weekday() as usize];
        let month = MONTHS[self.month as usize - 1];
        let part = match name {
            'a' => weekday[..3].to_owned(),
            'A' => weekday.to_owned(),
            'b' | 'h' => month[..3].to_owned(),
            'B' => month.to_owned(),
            'p' if flag == Some('#') => half.to_lowercase(),
            'p' => half.to_owned(),
            'P' => half.to_lowercase(),
            'c' => self.strftime("%a %b %e %H:%M:%S %Y"),
            'x' | 'D' => self.strftime("%m/%d/%y"),
            'X' | 'T' => self.strftime("%H:%M:%S"),
            'F' => self.strftime("%Y-%m-%d"),
            'R' => self.strftime("%H:%M"),
            'r' => self.strftime("%I:%M:%S %p"),
            // A time without a zone has no zone name and no UTC offset.
            'z' | 'Z' => String::new(),
            'n' => "\n".to_owned(),
            't' => "\t".to_owned(),
            '%' => "%".to_owned(),
            _ => return false,
        };
        let upper = flag == Some('^') || (flag == Some('#') && name != 'p');
        text.push_str(&if upper { part.to_uppercase() } else { part });
        true
    }

    /// Returns the time in ISO form, with a fraction only if there is one.
    #[must_use]
    pub fn to_iso(&self) -> String {
        let mut text = self.strftime("%Y-%m-%dT%H:%M:%S");
        text.insert_str(0, &"0".repeat(19_usize.saturating_sub(text.len())));
        if self.microsecond > 0 {
            // Writing to a String cannot fail.
            let _ = write!(text, ".{:06}", self.microsecond);
        }
        text
    }

    fn exists(&self) -> bool {
        let date = self.year >= 1 && (1..=12).contains(&self.month);
        date && (1..=self.days_of(self.month)).contains(&self.day)
            && self.hour < 24
            && self.minute < 60
            && self.second < 60
    }

    fn days_of(&self, month: u32) -> u32 {
        DAYS_OF_MONTH[month as usize - 1] + u32::from(month == 2 && is_leap(self.year))
    }

    /// Returns 1 for the first of January.
    fn day_of_year(&self) -> u32 {
        (1..self.month).map(|month| self.days_of(month)).sum::<u32>() + self.day
    }

    /// Returns 0 for Sunday.
    fn weekday(&self) -> u32 {
        let past = self.year - 1;
        (past * 365 + past / 4 - past / 100 + past / 400 + self.day_of_year()) % 7
    }

    /// Returns year and week by ISO 8601: weeks start on Monday, week 1 contains the first Thursday.
    fn iso_week(&self) -> (u32, u32) {
        let monday_based = (self.weekday() + 6) % 7;
        let week = (self.day_of_year() + 9 - monday_based) / 7;
        if week == 0 {
            return (self.year - 1, weeks_of(self.year - 1));
        }
        if week > weeks_of(self.year) { (self.year + 1, 1) } else { (self.year, week) }
    }
}

fn is_leap(year: u32) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

/// Returns the number of weeks of an ISO year: 53 if it starts on a Thursday, or is a leap year that starts
/// on a Wednesday.
fn weeks_of(year: u32) -> u32 {
    let first =
        CivilTime { year: year.max(1), month: 1, day: 1, hour: 0, minute: 0, second: 0, microsecond: 0 };
    let weekday = first.weekday();
    if weekday == 4 || (weekday == 3 && is_leap(year)) { 53 } else { 52 }
}

/// Parses three numbers of fixed widths with a separator between them.
fn numbers(text: &str, separator: char, widths: [usize; 3]) -> Option<[u32; 3]> {
    let mut parts = text.split(separator);
    let mut numbers = [0; 3];
    for (number, width) in numbers.iter_mut().zip(widths) {
        let part = parts.next()?;
        if part.len() != width || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        *number = part.parse().ok()?;
    }
    parts.next().is_none().then_some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> CivilTime {
        CivilTime::parse(text).unwrap()
    }

    #[test]
    fn directives_print_as_in_python() {
        let time = at("2024-07-06T03:04:05.25");
        let format = "%a %A %w %d %b %B %m %y %Y %H %I %p %M %S %f %j %U %W %% %G %u %V";
        let expected = "Sat Saturday 6 06 Jul July 07 24 2024 03 03 AM 04 05 250000 188 26 27 % 2024 6 27";
        assert_eq!(time.strftime(format), expected);
        assert_eq!(time.strftime("%c|%x|%X|%z%Z|"), "Sat Jul  6 03:04:05 2024|07/06/24|03:04:05||");
        assert_eq!(
            time.strftime("%-d %_d %e %-m %^a %D %F %T %R %k"),
            "6  6  6 7 SAT 07/06/24 2024-07-06 03:04:05 03:04  3"
        );
        assert_eq!(time.strftime("100% %Q %"), "100% %Q %");
    }

    #[test]
    fn iso_weeks_turn_with_the_thursday() {
        assert_eq!(at("2021-01-03").strftime("%G-%V"), "2020-53");
        assert_eq!(at("2024-12-30").strftime("%G-%V"), "2025-01");
        assert_eq!(at("2026-12-31").strftime("%G-%V"), "2026-53");
        assert_eq!(at("2000-02-29").strftime("%j %A"), "060 Tuesday");
    }

    #[test]
    fn times_that_do_not_exist_are_refused() {
        for text in ["2023-02-29", "2024-13-01", "2024-00-01", "0000-01-01", "2024-01-01T24:00:00"] {
            assert_eq!(CivilTime::parse(text).unwrap_err().kind(), ErrorKind::OutOfRange, "{text}");
        }
        for text in
            ["", "now", "2024-1-1", "2024-01-01T1:2:3", "2024-01-01T01:02:03.1234567", "2024-01-01-01"]
        {
            assert_eq!(CivilTime::parse(text).unwrap_err().kind(), ErrorKind::Malformed, "{text}");
        }
        assert_eq!(at("0099-01-02T03:04:05.5").to_iso(), "0099-01-02T03:04:05.500000");
    }
}
