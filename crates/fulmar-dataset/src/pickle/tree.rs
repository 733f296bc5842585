//! A check that the values of a pickle are a tree of bounded size, so that walking them ends.

use fulmar_core::limits::{PICKLE_DEPTH_MAX, PICKLE_VALUES_MAX};
use fulmar_core::{Error, ErrorKind, Result};

use super::Value;

/// State of a value while values are visited depth first.
#[derive(Clone, Copy)]
enum Seen {
    Not,
    Entered,
    /// Depth of the values in it, and how many there are if shared ones are counted each time.
    Left(usize, usize),
}

/// Refuses values inside themselves, too deep, or too many.
///
/// # Errors
/// `Corrupt` for a value inside itself; `LimitExceeded` for more than [`PICKLE_DEPTH_MAX`] values inside each other, or more
/// than [`PICKLE_VALUES_MAX`] where shared values are counted each time.
pub(super) fn check(values: &[Value<'_>], root: usize) -> Result<()> {
    let mut seen = vec![Seen::Not; values.len()];
    let mut open = vec![root];
    while let Some(at) = open.last().copied() {
        match seen[at] {
            Seen::Not => {
                seen[at] = Seen::Entered;
                for child in children(&values[at]) {
                    match seen[child] {
                        Seen::Not => open.push(child),
                        Seen::Entered => return Err(inside_itself()),
                        Seen::Left(..) => {}
                    }
                }
            }
            Seen::Entered => {
                open.pop();
                seen[at] = measured(&values[at], &seen)?;
            }
            Seen::Left(..) => {
                open.pop();
            }
        }
    }
    Ok(())
}

fn measured(value: &Value<'_>, seen: &[Seen]) -> Result<Seen> {
    let (mut depth, mut count) = (0, 1_usize);
    for child in children(value) {
        let Seen::Left(inner_depth, inner_count) = seen[child] else { return Err(inside_itself()) };
        depth = depth.max(inner_depth + 1);
        count = count.saturating_add(inner_count);
    }
    if depth > PICKLE_DEPTH_MAX {
        let detail =
            format!("a pickle must have at most {PICKLE_DEPTH_MAX} values inside each other: got {depth}");
        return Err(Error::new(ErrorKind::LimitExceeded, detail));
    }
    if count > PICKLE_VALUES_MAX {
        let detail = format!(
            "a pickle must have at most {PICKLE_VALUES_MAX} values, shared ones as often as they are used: got {count}"
        );
        return Err(Error::new(ErrorKind::LimitExceeded, detail));
    }
    Ok(Seen::Left(depth, count))
}

/// Returns the positions of the values in a value.
fn children(value: &Value<'_>) -> impl Iterator<Item = usize> {
    let (items, pairs, data) = match value {
        Value::List(items) | Value::Tuple(items) => (&items[..], &[][..], None),
        Value::Dict(entries) => (&[][..], &entries[..], None),
        Value::Array(array) => (&[][..], &[][..], array.data()),
        _ => (&[][..], &[][..], None),
    };
    items.iter().copied().chain(pairs.iter().flat_map(|(key, value)| [*key, *value])).chain(data)
}

fn inside_itself() -> Error {
    Error::new(ErrorKind::Corrupt, "a pickle must not have a value inside itself: it has one")
}
