//! The characters for bytes in the files of byte-level tokenizers: printable Latin-1 for itself, the other 68
//! bytes, in order, as U+0100 and up.

/// The character of each byte.
pub const CHARACTERS: [char; 256] = {
    let mut characters = ['\0'; 256];
    let (mut byte, mut num_moved) = (0, 0);
    while byte < 256 {
        let code = if is_itself(byte as u8) { byte as u32 } else { 0x100 + num_moved };
        num_moved += !is_itself(byte as u8) as u32;
        if let Some(character) = char::from_u32(code) {
            characters[byte] = character;
        }
        byte += 1;
    }
    characters
};

/// Returns the bytes of `token`, or `None` if one of its characters is not in the alphabet.
pub fn bytes_of(token: &str) -> Option<Vec<u8>> {
    token.chars().map(byte_of).collect()
}

/// Returns bytes as text in this alphabet.
pub fn text_of(bytes: &[u8]) -> String {
    bytes.iter().map(|&byte| CHARACTERS[usize::from(byte)]).collect()
}

fn byte_of(character: char) -> Option<u8> {
    match u32::from(character) {
        code @ 0..0x100 => u8::try_from(code).ok().filter(|&byte| is_itself(byte)),
        code @ 0x100..0x144 => MOVED.get(code as usize - 0x100).copied(),
        _ => None,
    }
}

const MOVED: [u8; 68] = {
    let mut moved = [0; 68];
    let (mut byte, mut index) = (0, 0);
    while byte < 256 {
        if !is_itself(byte as u8) {
            moved[index] = byte as u8;
            index += 1;
        }
        byte += 1;
    }
    moved
};

const fn is_itself(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_its_own_character_and_comes_back() {
        let text = text_of(&(0..=255).collect::<Vec<u8>>());
        assert_eq!(bytes_of(&text), Some((0..=255).collect()));
        assert_eq!(text_of(b" \na\xAD"), "ĠĊa\u{143}");
    }

    #[test]
    fn other_characters_stand_for_no_byte() {
        assert_eq!(["a b", "\u{144}", "猫"].map(bytes_of), [None, None, None]);
    }
}
