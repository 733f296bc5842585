//! The machine that runs a pickle: a stack of positions, marks in it, and a memo of positions.

use std::borrow::Cow;
use std::collections::HashMap;

use fulmar_core::limits::PICKLE_VALUES_MAX;
use fulmar_core::{Error, ErrorKind, Result};

use super::array::{Array, ArrayDtype, RANK_MAX};
use super::global::Global;
use super::input::{Input, corrupt, no_integer};
use super::{Pickle, Value, escapes};

/// Newest protocol.
const PROTOCOL_MAX: u8 = 5;

/// Runs a pickle to its end; bytes behind it are not read.
pub(super) fn run(bytes: &[u8]) -> Result<Pickle<'_>> {
    let mut machine = Machine {
        input: Input::new(bytes),
        values: Vec::new(),
        stack: Vec::new(),
        marks: Vec::new(),
        memo: HashMap::new(),
        encoded: HashMap::new(),
    };
    let root =
        machine.run().map_err(|error| error.at(format!("pickle, byte {}", machine.input.position())))?;
    Ok(Pickle { values: machine.values, root })
}

struct Machine<'a> {
    input: Input<'a>,
    values: Vec<Value<'a>>,
    stack: Vec<usize>,
    marks: Vec<usize>,
    memo: HashMap<u64, usize>,
    /// Bytes of texts that were encoded: a text that is encoded many times is copied once.
    encoded: HashMap<usize, usize>,
}

impl<'a> Machine<'a> {
    /// Returns the position of the last value.
    fn run(&mut self) -> Result<usize> {
        loop {
            match self.input.byte()? {
                b'.' => return self.pop(),
                code => self.step(code)?,
            }
            let count = self.values.len().max(self.stack.len()).max(self.memo.len()).max(self.marks.len());
            if count > PICKLE_VALUES_MAX {
                let detail = format!("a pickle must have at most {PICKLE_VALUES_MAX} values: got {count}");
                return Err(Error::new(ErrorKind::LimitExceeded, detail));
            }
        }
    }

    fn step(&mut self, code: u8) -> Result<()> {
        match code {
            0x80 => self.protocol(),
            // A frame is for readers of files; its length bounds nothing here.
            0x95 => self.input.take(8).map(drop),
            b'(' => {
                self.marks.push(self.stack.len());
                Ok(())
            }
            b'0' => self.pop().map(drop),
            b'1' => self.behind_mark().map(drop),
            b'2' => {
                let top = self.top()?;
                self.stack.push(top);
                Ok(())
            }
            b'p' | b'q' | b'r' | 0x94 => self.remember(code),
            b'g' | b'h' | b'j' => self.recall(code),
            b'N' | 0x88 | 0x89 | b'I' | b'J' | b'K' | b'M' | b'L' | 0x8a | 0x8b | b'F' | b'G' => {
                self.number(code)
            }
            b'S' | b'T' | b'U' | b'V' | b'X' | 0x8c | 0x8d => self.text(code),
            b'B' | b'C' | 0x8e | 0x96 => self.binary(code),
            b']' | b'l' | b'}' | b'd' | b')' | b't' | 0x85..=0x87 => self.container(code),
            b'a' | b'e' | b's' | b'u' => self.fill(code),
            b'c' | 0x93 => self.global(code),
            b'R' => self.call(),
            b'b' => self.build(),
            other => Err(refused(other)),
        }
    }

    fn protocol(&mut self) -> Result<()> {
        match self.input.byte()? {
            0..=PROTOCOL_MAX => Ok(()),
            other => {
                let detail = format!("the protocol must be at most {PROTOCOL_MAX}: got {other}");
                Err(Error::new(ErrorKind::Incompatible, detail))
            }
        }
    }

    fn remember(&mut self, code: u8) -> Result<()> {
        let key = match code {
            0x94 => self.memo.len() as u64,
            _ => self.memo_key(code)?,
        };
        let top = self.top()?;
        self.memo.insert(key, top);
        Ok(())
    }

    fn recall(&mut self, code: u8) -> Result<()> {
        let key = self.memo_key(code)?;
        let Some(at) = self.memo.get(&key).copied() else {
            return Err(corrupt(format!("memo {key} must be set before it is read: it is not")));
        };
        self.stack.push(at);
        Ok(())
    }

    fn memo_key(&mut self, code: u8) -> Result<u64> {
        match code {
            b'q' | b'h' => Ok(u64::from(self.input.byte()?)),
            b'r' | b'j' => self.input.unsigned(4),
            _ => self.input.parsed("a number of the memo"),
        }
    }

    fn number(&mut self, code: u8) -> Result<()> {
        let value = match code {
            b'N' => Value::None,
            0x88 => Value::Bool(true),
            0x89 => Value::Bool(false),
            b'J' => Value::Int(self.input.integer(4)?),
            b'K' => Value::Int(i64::from(self.input.byte()?)),
            b'M' => Value::Int(self.input.unsigned(2)?.cast_signed()),
            0x8a => {
                let len = usize::from(self.input.byte()?);
                Value::Int(self.input.integer(len)?)
            }
            0x8b => {
                let len = self.input.length(4)?;
                Value::Int(self.input.integer(len)?)
            }
            b'G' => {
                let bytes = self.input.take(8)?;
                Value::Float(bytes.try_into().map_or(f64::NAN, f64::from_be_bytes))
            }
            b'F' => Value::Float(self.input.parsed("a number")?),
            _ => self.decimal(code)?,
        };
        self.push(value);
        Ok(())
    }

    /// An integer in digits; protocols before 2 write `00` and `01` for bools.
    fn decimal(&mut self, code: u8) -> Result<Value<'a>> {
        let line = self.input.ascii_line()?;
        match (code, line) {
            (b'I', "00") => Ok(Value::Bool(false)),
            (b'I', "01") => Ok(Value::Bool(true)),
            _ => {
                let digits = line.strip_suffix('L').filter(|_| code == b'L').unwrap_or(line);
                digits.trim().parse().map(Value::Int).map_err(|_| no_integer())
            }
        }
    }

    fn text(&mut self, code: u8) -> Result<()> {
        let value = match code {
            b'V' => {
                let text = escapes::raw_unicode(self.input.line()?)
                    .ok_or_else(|| corrupt("a text must have whole escapes"))?;
                Value::Text(Cow::Owned(text))
            }
            b'S' => {
                let literal = self.input.line()?.trim_ascii();
                let bytes = escapes::quoted(literal).ok_or_else(|| corrupt("a literal must be quoted"))?;
                String::from_utf8(bytes).map_or_else(
                    |error| Value::Bytes(Cow::Owned(error.into_bytes())),
                    |text| Value::Text(Cow::Owned(text)),
                )
            }
            b'T' | b'U' => {
                let bytes = self.input.counted(if code == b'T' { 4 } else { 1 })?;
                text_or_bytes(bytes)
            }
            _ => {
                let bytes = self.input.counted(match code {
                    b'X' => 4,
                    0x8c => 1,
                    _ => 8,
                })?;
                let text = std::str::from_utf8(bytes)
                    .map_err(|error| corrupt("a text must be UTF-8").because(error))?;
                Value::Text(Cow::Borrowed(text))
            }
        };
        self.push(value);
        Ok(())
    }

    fn binary(&mut self, code: u8) -> Result<()> {
        let bytes = self.input.counted(match code {
            b'B' => 4,
            b'C' => 1,
            _ => 8,
        })?;
        self.push(Value::Bytes(Cow::Borrowed(bytes)));
        Ok(())
    }

    fn container(&mut self, code: u8) -> Result<()> {
        let value = match code {
            b']' => Value::List(Vec::new()),
            b'}' => Value::Dict(Vec::new()),
            b')' => Value::Tuple(Vec::new()),
            b'l' => Value::List(self.behind_mark()?),
            b't' => Value::Tuple(self.behind_mark()?),
            b'd' => Value::Dict(pairs(&self.behind_mark()?)?),
            short => {
                let len = usize::from(short - 0x84);
                let start = self.floor(len)?;
                Value::Tuple(self.stack.split_off(start))
            }
        };
        self.push(value);
        Ok(())
    }

    /// Appends to the list, or sets in the dictionary, below the values.
    fn fill(&mut self, code: u8) -> Result<()> {
        let added = match code {
            b'a' | b's' => {
                let start = self.floor(if code == b'a' { 1 } else { 2 })?;
                self.stack.split_off(start)
            }
            _ => self.behind_mark()?,
        };
        let target = self.top()?;
        match (&mut self.values[target], code) {
            (Value::List(items), b'a' | b'e') => items.extend(added),
            (Value::Dict(entries), b's' | b'u') => entries.extend(pairs(&added)?),
            _ => return Err(corrupt("values must be added to a list or a dictionary: they are not")),
        }
        Ok(())
    }

    fn global(&mut self, code: u8) -> Result<()> {
        let global = if code == b'c' {
            let module = self.input.ascii_line()?;
            Global::named(module, self.input.ascii_line()?)?
        } else {
            let (name, module) = (self.pop()?, self.pop()?);
            match (&self.values[module], &self.values[name]) {
                (Value::Text(module), Value::Text(name)) => Global::named(module, name)?,
                _ => return Err(corrupt("the name of a global must be a text: it is not")),
            }
        };
        self.push(Value::Global(global));
        Ok(())
    }

    fn call(&mut self) -> Result<()> {
        let (args, function) = (self.pop()?, self.pop()?);
        let (Value::Global(global), Value::Tuple(args)) = (&self.values[function], &self.values[args]) else {
            return Err(corrupt("a call must have a function and a tuple: it has not"));
        };
        let value = match (*global, &args[..]) {
            (Global::Reconstruct, [class, ..])
                if matches!(self.values[*class], Value::Global(Global::Ndarray)) =>
            {
                Value::Array(Box::new(Array::empty()))
            }
            (Global::Dtype, [code, ..]) => Value::Dtype(ArrayDtype::of(self.text_at(*code)?)?),
            (Global::FromBuffer, [data, dtype, shape, order]) => {
                let is_fortran = self.text_at(*order)? == "F";
                Value::Array(Box::new(self.array(*shape, *dtype, is_fortran, *data)?))
            }
            (Global::Encode, [text, _encoding]) => {
                let (text, encoding) = (*text, self.text_at(args[1])?);
                if encoding != "latin1" {
                    return Err(corrupt(format!("an encoding must be latin1: got {encoding:?}")));
                }
                return self.encode(text);
            }
            (other, args) => {
                let detail =
                    format!("arguments must be those of {other:?}: got {} of other kinds", args.len());
                return Err(corrupt(detail));
            }
        };
        self.push(value);
        Ok(())
    }

    /// Returns the bytes that are the characters of a text.
    fn encode(&mut self, text: usize) -> Result<()> {
        if let Some(known) = self.encoded.get(&text).copied() {
            self.stack.push(known);
            return Ok(());
        }
        let byte = |character: char| {
            u8::try_from(character).map_err(|_| {
                corrupt(format!("characters of latin1 must be at most 255: got {}", u32::from(character)))
            })
        };
        let bytes: Vec<u8> = self.text_at(text)?.chars().map(byte).collect::<Result<_>>()?;
        self.push(Value::Bytes(Cow::Owned(bytes)));
        self.encoded.insert(text, self.values.len() - 1);
        Ok(())
    }

    /// Gives an array or a dtype its state.
    fn build(&mut self) -> Result<()> {
        let (state, target) = (self.pop()?, self.top()?);
        let Value::Tuple(state) = &self.values[state] else {
            return Err(corrupt("the state of an array must be a tuple: it is not"));
        };
        let built = match (&self.values[target], &state[..]) {
            // Version, order, type in it, names, fields, size, alignment, flags.
            (Value::Dtype(dtype), [_, order, inner, names, fields, ..]) => {
                let is_plain =
                    [inner, names, fields].into_iter().all(|at| matches!(self.values[*at], Value::None));
                if !is_plain {
                    let detail = "the dtype of an array must be one number: it has fields";
                    return Err(Error::new(ErrorKind::Incompatible, detail));
                }
                Value::Dtype(dtype.with_order(self.text_at(*order)?))
            }
            // Version, shape, dtype, order of the elements, elements.
            (Value::Array(_), [_, shape, dtype, is_fortran, data]) => {
                let is_fortran = matches!(self.values[*is_fortran], Value::Bool(true));
                Value::Array(Box::new(self.array(*shape, *dtype, is_fortran, *data)?))
            }
            _ => return Err(refused(b'b')),
        };
        self.values[target] = built;
        Ok(())
    }

    fn array(&self, shape: usize, dtype: usize, is_fortran: bool, data: usize) -> Result<Array> {
        let Value::Dtype(dtype) = &self.values[dtype] else {
            return Err(corrupt("the dtype of an array must be a dtype: it is not"));
        };
        let lens = match &self.values[shape] {
            Value::Tuple(lens) => &lens[..],
            Value::Int(_) => &[shape][..],
            _ => return Err(corrupt("the shape of an array must be a tuple: it is not")),
        };
        // One more than may be is enough to see that it is too many.
        let lens = lens.iter().take(RANK_MAX + 1).map(|at| match &self.values[*at] {
            Value::Int(len) => {
                usize::try_from(*len).map_err(|_| corrupt("a length must be at least 0: it is not"))
            }
            _ => Err(corrupt("a length must be an integer: it is not")),
        });
        Array::new(lens.collect::<Result<_>>()?, *dtype, is_fortran, data)
    }

    fn text_at(&self, at: usize) -> Result<&str> {
        match &self.values[at] {
            Value::Text(text) => Ok(text),
            _ => Err(corrupt("an argument must be a text: it is not")),
        }
    }

    fn push(&mut self, value: Value<'a>) {
        self.stack.push(self.values.len());
        self.values.push(value);
    }

    fn top(&self) -> Result<usize> {
        self.floor(1).map(|at| self.stack[at])
    }

    fn pop(&mut self) -> Result<usize> {
        let at = self.top()?;
        self.stack.pop();
        Ok(at)
    }

    /// Returns where the last `count` positions of the stack begin, which must be behind the last mark.
    fn floor(&self, count: usize) -> Result<usize> {
        let floor = self.marks.last().copied().unwrap_or(0);
        self.stack
            .len()
            .checked_sub(count)
            .filter(|start| *start >= floor)
            .ok_or_else(|| corrupt(format!("the stack must have {count} values: it has fewer")))
    }

    fn behind_mark(&mut self) -> Result<Vec<usize>> {
        let mark = self.marks.pop().ok_or_else(|| corrupt("the stack must have a mark: it has none"))?;
        Ok(self.stack.split_off(mark))
    }
}

/// Strings of Python 2 are texts or bytes.
fn text_or_bytes(bytes: &[u8]) -> Value<'_> {
    std::str::from_utf8(bytes)
        .map_or(Value::Bytes(Cow::Borrowed(bytes)), |text| Value::Text(Cow::Borrowed(text)))
}

fn pairs(items: &[usize]) -> Result<Vec<(usize, usize)>> {
    let (pairs, rest) = items.as_chunks::<2>();
    match rest.is_empty() {
        true => Ok(pairs.iter().map(|[key, value]| (*key, *value)).collect()),
        false => Err(corrupt("a key of a dictionary must have a value: one has none")),
    }
}

fn refused(code: u8) -> Error {
    let what = match code {
        b'i' | b'o' | b'b' | 0x81 | 0x92 => "an object of a class",
        b'P' | b'Q' => "an object that is elsewhere",
        0x82..=0x84 => "an object by the number of its class",
        0x8f..=0x91 => "a set",
        0x97 | 0x98 => "a buffer that is elsewhere",
        other => return corrupt(format!("an operation must be one of protocol 0 to 5: got byte {other}")),
    };
    Error::new(ErrorKind::Forbidden, format!("a pickle must have plain values and arrays alone: got {what}"))
}
