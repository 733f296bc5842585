//! The binary format of a ledger: little-endian columns with a checksum at the end, for storage and transfer.
//!
//! ```text
//! magic           8 bytes, "\x89FLedger"; its first byte is no ASCII, so no text is taken for a ledger
//! version         u32; a reader refuses one that it does not know
//! header check    u32, CRC-32 of the 12 bytes before
//! sections        each: name, 4 bytes; length of the column in bytes, u64; the column
//! check           u32, CRC-32 of everything before
//! ```
//!
//! Columns are `u32` except for two of bytes; log-probabilities are the bits of `f32`. `T` tokens, `L` of
//! them sampled, `B` branches, `S` segments, `V` of them sampled:
//!
//! ```text
//! stat [2]    number of turns, current branch      segb [S]    branch of each segment
//! brtn [B]    turn that opened each branch         segl [S]    its length
//! frkb [B-1]  branch that each but the root left   sego [S]    its origin, bytes
//! frkp [B-1]  after how many tokens                segm [S]    its message, -1 for none
//! frkr [B-1]  why, bytes                           segt [S]    its turn
//! toks [T]    token ids                            vmin [V]    the oldest weights of each sampled segment
//! logp [L]    log-probability at temperature 1     vmax [V]    the newest
//! slgp [L]    under the sampling distribution
//! ```
//!
//! Sections with other names are skipped, so a later version may add columns that old readers can ignore. A
//! column that they must read raises the version.

use fulmar_core::{Error, ErrorKind};

use super::form::{Form, KIND, StoredBranch, VERSION, check_version};
use super::{BranchReason, Fork, Ledger, Segment, VersionRange};
use crate::{Origin, Result};

const MAGIC: &[u8; 8] = b"\x89FLedger";
const HEADER_BYTES: usize = 16;
const CHECK_BYTES: usize = 4;

impl Ledger {
    /// Returns the whole ledger as bytes, with a version number and a checksum. Equal ledgers give equal
    /// bytes.
    ///
    /// # Examples
    /// ```
    /// use fulmar_chat::Ledger;
    /// let ledger = Ledger::default();
    /// assert_eq!(Ledger::from_bytes(&ledger.to_bytes())?, ledger);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = [&MAGIC[..], &VERSION.to_le_bytes()].concat();
        seal(&mut bytes);
        let forks: Vec<Fork> = self.forks().collect();
        let versions: Vec<VersionRange> = self.segments.iter().filter_map(|run| run.policy_version).collect();
        put_u32(&mut bytes, b"stat", [self.num_turns, self.current].into_iter());
        put_u32(&mut bytes, b"brtn", self.branches.iter().map(|branch| branch.turn));
        put_u32(&mut bytes, b"frkb", forks.iter().map(|fork| fork.branch));
        put_u32(&mut bytes, b"frkp", forks.iter().map(|fork| fork.position));
        put(&mut bytes, b"frkr", forks.iter().map(|fork| [fork.reason.code()]));
        put_u32(&mut bytes, b"segb", self.segments.iter().map(|run| run.branch));
        put_u32(&mut bytes, b"segl", self.segments.iter().map(|run| run.length));
        put(&mut bytes, b"sego", self.segments.iter().map(|run| [run.origin.code()]));
        put(&mut bytes, b"segm", self.segments.iter().map(|run| run.message_index.to_le_bytes()));
        put_u32(&mut bytes, b"segt", self.segments.iter().map(|run| run.turn));
        put(&mut bytes, b"vmin", versions.iter().map(|range| range.min.to_le_bytes()));
        put(&mut bytes, b"vmax", versions.iter().map(|range| range.max.to_le_bytes()));
        put(&mut bytes, b"toks", self.ids.iter().map(|id| id.to_le_bytes()));
        put(&mut bytes, b"logp", self.log_probs.iter().map(|value| value.to_le_bytes()));
        put(&mut bytes, b"slgp", self.sampled_log_probs.iter().map(|value| value.to_le_bytes()));
        seal(&mut bytes);
        bytes
    }

    /// Reads the output of [`Ledger::to_bytes`], of this version of Fulmar or an earlier one. Uses memory in
    /// proportion to `bytes`, whatever they claim.
    ///
    /// # Errors
    /// `Corrupt` if `bytes` do not have that form, were changed or truncated, or are inconsistent;
    /// `Incompatible` for a later version; `LimitExceeded` as for [`Ledger::record_turn`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        check_header(bytes)?;
        let body = unseal(bytes, "a body")?;
        let read = Sections::split(body.get(HEADER_BYTES..).unwrap_or_default())
            .and_then(|sections| sections.form()?.into_ledger());
        read.map_err(|error| match error.kind() {
            ErrorKind::LimitExceeded => error,
            _ => Error::new(ErrorKind::Corrupt, error.detail()),
        })
    }
}

/// Appends a section of one column.
fn put<const N: usize>(bytes: &mut Vec<u8>, name: &[u8; 4], column: impl ExactSizeIterator<Item = [u8; N]>) {
    bytes.extend_from_slice(name);
    bytes.extend_from_slice(&((column.len() * N) as u64).to_le_bytes());
    bytes.extend(column.flatten());
}

/// Appends a section of counts, all of which are at most [`fulmar_core::limits::LEDGER_TOKENS_MAX`].
fn put_u32(bytes: &mut Vec<u8>, name: &[u8; 4], column: impl ExactSizeIterator<Item = usize>) {
    put(bytes, name, column.map(|count| (count as u32).to_le_bytes()));
}

/// Appends the checksum of all bytes so far.
fn seal(bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&crc32fast::hash(bytes).to_le_bytes());
}

/// Checks and removes the checksum of [`seal`].
fn unseal<'a>(bytes: &'a [u8], what: &str) -> Result<&'a [u8]> {
    let Some((body, check)) = bytes.split_last_chunk::<CHECK_BYTES>() else {
        return Err(corrupt(&format!("hold {what}"), format!("{} bytes", bytes.len())));
    };
    let [stored, computed] = [u32::from_le_bytes(*check), crc32fast::hash(body)];
    if stored != computed {
        return Err(corrupt(&format!("hold {what} of checksum {stored:08x}"), format!("{computed:08x}")));
    }
    Ok(body)
}

fn check_header(bytes: &[u8]) -> Result<()> {
    let header = bytes.get(..HEADER_BYTES).filter(|header| header.starts_with(MAGIC));
    let header = header.ok_or_else(|| corrupt("begin as a ledger does", "another beginning"))?;
    let version = unseal(header, "a header")?.last_chunk().copied().map_or(0, u32::from_le_bytes);
    check_version("ledger bytes", version)
}

/// The sections by name; the columns are still bytes.
struct Sections<'a>(Vec<([u8; 4], &'a [u8])>);

impl<'a> Sections<'a> {
    fn split(mut rest: &'a [u8]) -> Result<Self> {
        let mut sections = Vec::new();
        while !rest.is_empty() {
            let cut = || corrupt("end with a whole section", format!("a cut one of {} bytes", rest.len()));
            let (name, after) = rest.split_first_chunk().ok_or_else(cut)?;
            let (length, after) = after.split_first_chunk().ok_or_else(cut)?;
            let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| cut())?;
            let (column, after) = after.split_at_checked(length).ok_or_else(cut)?;
            sections.push((*name, column));
            rest = after;
        }
        Ok(Self(sections))
    }

    /// Returns the column of the only section `name`.
    fn column(&self, name: &[u8; 4]) -> Result<&'a [u8]> {
        let mut found = self.0.iter().filter(|(known, _)| known == name);
        match (found.next(), found.next()) {
            (Some((_, column)), None) => Ok(column),
            (first, _) => {
                let rule = format!("hold one section {}", String::from_utf8_lossy(name));
                Err(corrupt(&rule, if first.is_none() { "0" } else { "several" }))
            }
        }
    }

    fn words(&self, name: &[u8; 4]) -> Result<impl ExactSizeIterator<Item = [u8; 4]>> {
        let column = self.column(name)?;
        let (words, rest) = column.as_chunks();
        if rest.is_empty() {
            return Ok(words.iter().copied());
        }
        let rule = format!("hold whole words in section {}", String::from_utf8_lossy(name));
        Err(corrupt(&rule, format!("{} bytes", column.len())))
    }

    fn u32s(&self, name: &[u8; 4]) -> Result<Vec<u32>> {
        Ok(self.words(name)?.map(u32::from_le_bytes).collect())
    }

    fn f32s(&self, name: &[u8; 4]) -> Result<Vec<f32>> {
        Ok(self.words(name)?.map(f32::from_le_bytes).collect())
    }

    fn form(&self) -> Result<Form> {
        let counts = self.u32s(b"stat")?;
        check_equal("counts", [counts.len(), 2])?;
        Ok(Form {
            version: VERSION,
            kind: KIND.to_owned(),
            num_turns: counts[0] as usize,
            current: counts[1] as usize,
            branches: self.branches()?,
            segments: self.segments()?,
            ids: self.u32s(b"toks")?,
            log_probs: self.f32s(b"logp")?,
            sampled_log_probs: self.f32s(b"slgp")?,
        })
    }

    fn branches(&self) -> Result<Vec<StoredBranch>> {
        let turns = self.u32s(b"brtn")?;
        let [parents, positions] = [self.u32s(b"frkb")?, self.u32s(b"frkp")?];
        let reasons = BranchReason::from_codes(self.column(b"frkr")?)?;
        let num_forks = turns.len().saturating_sub(1);
        check_equal("forks", [parents.len(), num_forks])?;
        check_equal("forks", [positions.len(), num_forks])?;
        check_equal("forks", [reasons.len(), num_forks])?;
        let fork = |k: usize| Fork {
            branch: parents[k] as usize,
            position: positions[k] as usize,
            reason: reasons[k],
        };
        let stored = |(index, &turn): (usize, &u32)| StoredBranch {
            turn: turn as usize,
            fork: index.checked_sub(1).map(fork),
        };
        Ok(turns.iter().enumerate().map(stored).collect())
    }

    fn segments(&self) -> Result<Vec<Segment>> {
        let [branches, lengths, turns] = [self.u32s(b"segb")?, self.u32s(b"segl")?, self.u32s(b"segt")?];
        let origins = Origin::from_codes(self.column(b"sego")?)?;
        let messages = self.words(b"segm")?.map(i32::from_le_bytes);
        let num_sampled = origins.iter().filter(|&&origin| origin == Origin::Sampled).count();
        check_equal("segments", [lengths.len(), branches.len()])?;
        check_equal("segments", [turns.len(), branches.len()])?;
        check_equal("segments", [origins.len(), branches.len()])?;
        check_equal("segments", [messages.len(), branches.len()])?;
        let [oldest, newest] = [self.u32s(b"vmin")?, self.u32s(b"vmax")?];
        check_equal("sampled segments", [oldest.len(), num_sampled])?;
        check_equal("sampled segments", [newest.len(), num_sampled])?;
        let mut versions = oldest.into_iter().zip(newest).map(|(min, max)| VersionRange { min, max });
        let segment = |(k, message_index): (usize, i32)| Segment {
            branch: branches[k] as usize,
            length: lengths[k] as usize,
            origin: origins[k],
            message_index,
            turn: turns[k] as usize,
            policy_version: if origins[k] == Origin::Sampled { versions.next() } else { None },
            start: 0,
            sampled_start: 0,
        };
        Ok(messages.enumerate().map(segment).collect())
    }
}

fn check_equal(what: &str, [found, expected]: [usize; 2]) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(corrupt(&format!("hold {expected} {what}"), found))
}

fn corrupt(rule: &str, got: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Corrupt, format!("ledger bytes must {rule}: got {got}"))
}
