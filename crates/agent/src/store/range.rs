//! `--from` and `--until`: times of the wall clock, as people write them.

use jiff::civil::Time;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _, Zoned};

/// A range of the wall clock, ms since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeRange {
    /// Start.
    pub from_ms: i64,
    /// End; nothing that starts here belongs to the range.
    pub until_ms: i64,
}

/// Why a time cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// It is in no form that is known.
    #[error(
        "{option} '{text}' is no time: write 14:00, 14:00:30, 2026-11-27T14:00:00Z, -10m (before now) or now"
    )]
    Form {
        /// The option.
        option: &'static str,
        /// Its value.
        text: String,
    },
    /// The end is not after the start.
    #[error("--until ({until}) is not after --from ({from})")]
    Empty {
        /// The start.
        from: String,
        /// The end.
        until: String,
    },
}

/// The range from `from` to `until` as seen at `now`; by default the last five minutes up to now, and five
/// minutes from a start. A time of day is the latest one that is past; for the end, the first one after
/// the start.
///
/// # Errors
/// [`RangeError`] for a time in no known form, and for a range without time.
pub fn parse_range(
    from: Option<&str>,
    until: Option<&str>,
    now: &Zoned,
) -> Result<TimeRange, RangeError> {
    let usual = 5.minutes();
    let start = from.map(|t| instant("--from", t, now)).transpose()?;
    let end = match (until, &start) {
        (Some(text), Some(start)) => match time_of_day(text) {
            Some(time) => Some(first_after(time, start)),
            None => Some(instant("--until", text, now)?),
        },
        (Some(text), None) => Some(instant("--until", text, now)?),
        (None, _) => None,
    };
    let (start, end) = match (start, end) {
        (Some(start), Some(end)) => (start, end),
        (Some(start), None) => {
            let end = start.saturating_add(usual);
            (start, end)
        }
        (None, end) => {
            let end = end.unwrap_or(now.clone());
            (end.saturating_sub(usual), end)
        }
    };
    if end <= start {
        return Err(RangeError::Empty {
            from: shown(start.timestamp().as_millisecond(), now.time_zone()),
            until: shown(end.timestamp().as_millisecond(), now.time_zone()),
        });
    }
    Ok(TimeRange {
        from_ms: start.timestamp().as_millisecond(),
        until_ms: end.timestamp().as_millisecond(),
    })
}

/// A time as people read it, in the time zone `zone`.
pub(super) fn shown(ms: i64, zone: &TimeZone) -> String {
    let at = Timestamp::from_millisecond(ms).unwrap_or(Timestamp::UNIX_EPOCH);
    at.to_zoned(zone.clone())
        .strftime("%Y-%m-%dT%H:%M:%S%:z")
        .to_string()
}

fn time_of_day(text: &str) -> Option<Time> {
    ["%H:%M:%S", "%H:%M"]
        .iter()
        .find_map(|form| Time::strptime(form, text).ok())
}

fn instant(option: &'static str, text: &str, now: &Zoned) -> Result<Zoned, RangeError> {
    if let Some(time) = time_of_day(text) {
        return Ok(latest(time, now));
    }
    if text == "now" {
        return Ok(now.clone());
    }
    let ago = text.strip_prefix('-').and_then(length_ms);
    if let Some(ms) = ago {
        return Ok(now.saturating_sub(ms.milliseconds()));
    }
    let at: Option<Timestamp> = text.parse().ok();
    at.map(|t| t.to_zoned(now.time_zone().clone()))
        .ok_or_else(|| RangeError::Form {
            option,
            text: text.to_string(),
        })
}

/// `90s`, `10m`, `2h`, `1d`, ms.
fn length_ms(text: &str) -> Option<i64> {
    let unit = text.chars().next_back()?;
    let ms = match unit {
        's' => 1_000,
        'm' => 60_000,
        'h' => 3_600_000,
        'd' => 86_400_000,
        _ => return None,
    };
    let count: u32 = text.strip_suffix(unit)?.parse().ok()?;
    i64::from(count).checked_mul(ms)
}

/// The latest `time` of a day that is not after `now`.
fn latest(time: Time, now: &Zoned) -> Zoned {
    let today = now.with().time(time).build();
    match today {
        Ok(at) if at <= *now => at,
        Ok(at) => at.saturating_sub(1.day()),
        Err(_) => now.clone(),
    }
}

/// The first `time` of a day after `start`.
fn first_after(time: Time, start: &Zoned) -> Zoned {
    match start.with().time(time).build() {
        Ok(at) if at > *start => at,
        Ok(at) => at.saturating_add(1.day()),
        Err(_) => start.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(from: &str, until: &str) -> Result<String, RangeError> {
        let now: Timestamp = "2026-11-27T15:10:00+01:00".parse().unwrap();
        let now = now.to_zoned(TimeZone::fixed(jiff::tz::offset(1)));
        let given = |t| Some(t).filter(|t: &&str| !t.is_empty());
        let range = parse_range(given(from), given(until), &now)?;
        let zone = now.time_zone();
        let day = |ms| shown(ms, zone)[8..19].to_string();
        Ok(format!("{} {}", day(range.from_ms), day(range.until_ms)))
    }

    #[test]
    fn times_are_read_as_people_write_them() {
        for (from, until, expected) in [
            ("14:00", "14:05", "27T14:00:00 27T14:05:00"),
            ("14:00:30", "14:00:31", "27T14:00:30 27T14:00:31"),
            ("23:58", "00:02", "26T23:58:00 27T00:02:00"),
            ("15:11", "", "26T15:11:00 26T15:16:00"),
            ("-10m", "-90s", "27T15:00:00 27T15:08:30"),
            ("-2h", "now", "27T13:10:00 27T15:10:00"),
            ("2026-11-27T13:00:00Z", "14:02", "27T14:00:00 27T14:02:00"),
            (
                "2026-11-27T13:00:00+02:00",
                "now",
                "27T12:00:00 27T15:10:00",
            ),
            ("", "", "27T15:05:00 27T15:10:00"),
            ("", "14:00", "27T13:55:00 27T14:00:00"),
        ] {
            assert_eq!(
                range(from, until).as_deref(),
                Ok(expected),
                "{from} {until}"
            );
        }
    }

    #[test]
    fn other_texts_are_named() {
        for wrong in ["", "25:00", "-10", "-m", "10m", "yesterday", "14:00:61"] {
            let told = range(wrong, "now");
            match wrong {
                "" => assert!(told.is_ok()),
                _ => assert!(matches!(told, Err(RangeError::Form { .. })), "{wrong}"),
            }
        }
        assert!(matches!(range("-1m", "-2m"), Err(RangeError::Empty { .. })));
    }
}
