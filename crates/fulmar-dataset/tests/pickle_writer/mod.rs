//! A small writer of pickles, in protocols 0 to 5.

#![allow(dead_code, clippy::allow_attributes, reason = "each test uses a part")]

/// A value that is written.
#[derive(Debug, Clone, PartialEq)]
pub enum Plain {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    Bytes(Vec<u8>),
    List(Vec<Plain>),
    Tuple(Vec<Plain>),
    Dict(Vec<(String, Plain)>),
    /// Dtype with its order, such as `<f4`; shape; elements.
    Array(&'static str, Vec<usize>, Vec<u8>),
    /// An array of one object, without dimensions.
    Object(Box<Plain>),
}

impl Plain {
    pub fn text(text: &str) -> Self {
        Self::Text(text.to_owned())
    }

    pub fn dict<const N: usize>(entries: [(&str, Plain); N]) -> Self {
        Self::Dict(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    }

    pub fn floats(values: &[f64]) -> Self {
        Self::List(values.iter().map(|value| Self::Float(*value)).collect())
    }
}

/// Returns a pickle of `value`.
pub fn write(value: &Plain, protocol: u8) -> Vec<u8> {
    let mut bytes = if protocol >= 2 { vec![0x80, protocol] } else { Vec::new() };
    put(value, protocol, &mut bytes);
    bytes.push(b'.');
    bytes
}

/// Returns an `.npy` file with one object, which is `value`.
pub fn write_object_file(value: &Plain, protocol: u8) -> Vec<u8> {
    let header = format!("{:<117}\n", "{'descr': '|O', 'fortran_order': False, 'shape': (), }");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend(u16::try_from(header.len()).unwrap().to_le_bytes());
    bytes.extend(header.bytes());
    bytes.extend(write(&Plain::Object(Box::new(value.clone())), protocol));
    bytes
}

fn put(value: &Plain, protocol: u8, to: &mut Vec<u8>) {
    match value {
        Plain::None => to.push(b'N'),
        Plain::Bool(value) if protocol < 2 => to.extend(if *value { b"I01\n" } else { b"I00\n" }),
        Plain::Bool(value) => to.push(if *value { 0x88 } else { 0x89 }),
        Plain::Int(value) => int(*value, protocol, to),
        Plain::Float(value) if protocol < 1 => to.extend(format!("F{value:?}\n").bytes()),
        Plain::Float(value) => tagged(b'G', &value.to_be_bytes(), to),
        Plain::Text(value) => text(value, protocol, to),
        Plain::Bytes(value) => binary(value, protocol, to),
        Plain::List(items) => {
            to.extend(if protocol < 1 { &b"(l"[..] } else { &b"]("[..] });
            for item in items {
                put(item, protocol, to);
                if protocol < 1 {
                    to.push(b'a');
                }
            }
            if protocol >= 1 {
                to.push(b'e');
            }
        }
        Plain::Tuple(items) => {
            let short = (2..=u8::MAX).contains(&protocol) && (1..4).contains(&items.len());
            if !short {
                to.push(b'(');
            }
            items.iter().for_each(|item| put(item, protocol, to));
            to.push(if short { 0x84 + items.len() as u8 } else { b't' });
        }
        Plain::Dict(entries) => {
            to.extend(if protocol < 1 { &b"(d"[..] } else { &b"}("[..] });
            for (key, value) in entries {
                text(key, protocol, to);
                put(value, protocol, to);
                if protocol < 1 {
                    to.push(b's');
                }
            }
            if protocol >= 1 {
                to.push(b'u');
            }
        }
        Plain::Array(dtype, shape, bytes) => array(dtype, shape, bytes, protocol, to),
        Plain::Object(value) => object(value, protocol, to),
    }
}

fn int(value: i64, protocol: u8, to: &mut Vec<u8>) {
    match (protocol, value) {
        (0, _) => to.extend(format!("I{value}\n").bytes()),
        (_, 0..=255) => tagged(b'K', &[value as u8], to),
        (_, 256..=65535) => tagged(b'M', &(value as u16).to_le_bytes(), to),
        (_, -2147483648..=2147483647) => tagged(b'J', &(value as i32).to_le_bytes(), to),
        (1, _) => to.extend(format!("L{value}L\n").bytes()),
        _ => {
            tagged(0x8a, &[8], to);
            to.extend(value.to_le_bytes());
        }
    }
}

fn text(value: &str, protocol: u8, to: &mut Vec<u8>) {
    if protocol == 0 {
        to.push(b'V');
        for character in value.chars() {
            match u32::from(character) {
                0 | 10 | 13 | 26 | 92 => to.extend(format!("\\u{:04x}", u32::from(character)).bytes()),
                code @ 0..=255 => to.push(code as u8),
                code @ 256..=0xffff => to.extend(format!("\\u{code:04x}").bytes()),
                code => to.extend(format!("\\U{code:08x}").bytes()),
            }
        }
        to.push(b'\n');
    } else if protocol >= 4 && value.len() < 256 {
        tagged(0x8c, &[value.len() as u8], to);
        to.extend(value.bytes());
    } else {
        tagged(b'X', &(value.len() as u32).to_le_bytes(), to);
        to.extend(value.bytes());
    }
}

fn binary(value: &[u8], protocol: u8, to: &mut Vec<u8>) {
    if protocol < 3 {
        global("_codecs", "encode", protocol, to);
        let characters: String = value.iter().copied().map(char::from).collect();
        put(&Plain::Tuple(vec![Plain::Text(characters), Plain::text("latin1")]), protocol, to);
        to.push(b'R');
    } else if protocol == 5 {
        tagged(0x96, &(value.len() as u64).to_le_bytes(), to);
        to.extend(value);
    } else if value.len() < 256 {
        tagged(b'C', &[value.len() as u8], to);
        to.extend(value);
    } else {
        tagged(b'B', &(value.len() as u32).to_le_bytes(), to);
        to.extend(value);
    }
}

fn global(module: &str, name: &str, protocol: u8, to: &mut Vec<u8>) {
    if protocol < 4 {
        to.extend(format!("c{module}\n{name}\n").bytes());
    } else {
        text(module, protocol, to);
        text(name, protocol, to);
        to.push(0x93);
    }
}

fn array(dtype: &str, shape: &[usize], bytes: &[u8], protocol: u8, to: &mut Vec<u8>) {
    let shape = Plain::Tuple(shape.iter().map(|len| Plain::Int(*len as i64)).collect());
    if protocol == 5 {
        global("numpy._core.numeric", "_frombuffer", protocol, to);
        to.push(b'(');
        binary(bytes, protocol, to);
        dtype_of(dtype, protocol, to);
        put(&shape, protocol, to);
        text("C", protocol, to);
        to.extend(b"tR");
        return;
    }
    reconstruct(protocol, to);
    to.extend(b"(");
    int(1, protocol, to);
    put(&shape, protocol, to);
    dtype_of(dtype, protocol, to);
    put(&Plain::Bool(false), protocol, to);
    binary(bytes, protocol, to);
    to.extend(b"tb");
}

fn object(value: &Plain, protocol: u8, to: &mut Vec<u8>) {
    reconstruct(protocol, to);
    to.push(b'(');
    int(1, protocol, to);
    put(&Plain::Tuple(Vec::new()), protocol, to);
    dtype_of("|O8", protocol, to);
    put(&Plain::Bool(false), protocol, to);
    put(&Plain::List(vec![value.clone()]), protocol, to);
    to.extend(b"tb");
}

fn reconstruct(protocol: u8, to: &mut Vec<u8>) {
    // NumPy 1 has the other name.
    let module = if protocol.is_multiple_of(2) { "numpy._core.multiarray" } else { "numpy.core.multiarray" };
    global(module, "_reconstruct", protocol, to);
    to.push(b'(');
    global("numpy", "ndarray", protocol, to);
    put(&Plain::Tuple(vec![Plain::Int(0)]), protocol, to);
    binary(b"b", protocol, to);
    to.extend(b"tR");
}

fn dtype_of(dtype: &str, protocol: u8, to: &mut Vec<u8>) {
    let (order, code) = dtype.split_at(1);
    global("numpy", "dtype", protocol, to);
    put(&Plain::Tuple(vec![Plain::text(code), Plain::Bool(false), Plain::Bool(true)]), protocol, to);
    to.push(b'R');
    let rest = [Plain::None, Plain::None, Plain::None, Plain::Int(-1), Plain::Int(-1), Plain::Int(0)];
    let state: Vec<_> = [Plain::Int(3), Plain::text(order)].into_iter().chain(rest).collect();
    put(&Plain::Tuple(state), protocol, to);
    to.push(b'b');
}

fn tagged(tag: u8, bytes: &[u8], to: &mut Vec<u8>) {
    to.push(tag);
    to.extend(bytes);
}
