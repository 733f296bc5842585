//! Cards that run out of memory.

/// Most free bytes of a card that runs out of memory: all of them are written once a failure.
pub const MEMORY_MAX: usize = 16 << 20;

/// Returns the bytes that an allocation lacked, from the sentence of its error.
pub fn lacking(detail: &str) -> Option<usize> {
    let number = |before: &str| detail.split(before).next()?.rsplit(' ').next()?.parse::<usize>().ok();
    number(" bytes wanted")?.checked_sub(number(" bytes free")?)
}
