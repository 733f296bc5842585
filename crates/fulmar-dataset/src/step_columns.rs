//! Steps of one episode, each a dictionary, as columns.

use fulmar_core::limits::EPISODE_BYTES_MAX;
use fulmar_core::{Error, ErrorKind, Result};
use fulmar_tensor::{Entry, NonTensor, Tensor, TensorDict};
use indexmap::IndexMap;

use crate::image::Image;
use crate::pickle::PickleItem;
use crate::rows::named;

/// Returns the columns of steps, `[T]`: numbers and lists of them as tensors, texts one a row, `{"bytes": .., "path": ..}` as images,
/// u8 `[T, 3, H, W]`. Floats of Python are `f32`, integers `i64`.
///
/// # Errors
/// With the key and the step, `Incompatible` for a value of another kind; `UnknownName` for a key that only some steps have;
/// `ShapeMismatch` for numbers, arrays or images of different shapes; `LimitExceeded` beyond [`EPISODE_BYTES_MAX`]; those of images.
pub(crate) fn columns(steps: &[PickleItem<'_>]) -> Result<TensorDict> {
    Columns { num_bytes: 0 }.dict(steps)
}

struct Columns {
    /// Bytes of all columns so far.
    num_bytes: u64,
}

impl Columns {
    fn dict(&mut self, steps: &[PickleItem<'_>]) -> Result<TensorDict> {
        let mut by_key: IndexMap<&str, Vec<PickleItem<'_>>> = IndexMap::new();
        for (at, step) in steps.iter().enumerate() {
            let entries = step.entries().map_err(|error| in_step(error, at))?;
            for (key, value) in entries {
                let column = by_key.entry(key).or_default();
                if column.len() != at {
                    return Err(missing(key, column.len()));
                }
                column.push(value);
            }
        }
        let mut columns = TensorDict::new(&[steps.len()])?;
        for (key, column) in by_key {
            if column.len() != steps.len() {
                return Err(missing(key, column.len()));
            }
            columns.set(key, self.column(&column).map_err(|error| named(error, key))?)?;
        }
        Ok(columns)
    }

    /// The first value says what all must be.
    fn column(&mut self, values: &[PickleItem<'_>]) -> Result<Entry> {
        let Some(first) = values.first() else { return Ok(TensorDict::new(&[0])?.into()) };
        match first.kind() {
            "dict" if first.entries()?.get("bytes").is_some_and(|bytes| bytes.as_bytes().is_some()) => {
                self.images(values).map(Entry::from)
            }
            "dict" => self.dict(values).map(Entry::from),
            "str" => texts(values).map(Entry::from),
            "array" => self.arrays(values).map(Entry::from),
            "bool" | "int" | "float" | "list" | "tuple" => self.numbers(values).map(Entry::from),
            other => Err(in_step(no_number(other), 0)),
        }
    }

    fn images(&mut self, values: &[PickleItem<'_>]) -> Result<Tensor> {
        let (mut pixels, mut size) = (Vec::new(), None);
        for (at, value) in values.iter().enumerate() {
            self.image(*value, values.len(), &mut size, &mut pixels).map_err(|error| in_step(error, at))?;
        }
        let [height, width] = size.unwrap_or_default();
        Tensor::from_vec(&[values.len(), 3, height, width], pixels)
    }

    fn image(
        &mut self,
        value: PickleItem<'_>,
        num_steps: usize,
        size: &mut Option<[usize; 2]>,
        pixels: &mut Vec<u8>,
    ) -> Result<()> {
        let bytes = value.entries()?.get("bytes").and_then(|bytes| bytes.as_bytes());
        let bytes = bytes
            .ok_or_else(|| Error::new(ErrorKind::UnknownName, "an image must have bytes: it has none"))?;
        let image = Image::open(bytes)?;
        match *size {
            None => self.count(num_steps, 3 * image.size()[0] * image.size()[1])?,
            Some(first) if first == image.size() => {}
            Some(first) => {
                let detail =
                    format!("an image must have the size {first:?} of the first: got {:?}", image.size());
                return Err(Error::new(ErrorKind::ShapeMismatch, detail));
            }
        }
        *size = Some(image.size());
        image.append_to(pixels)
    }

    fn arrays(&mut self, values: &[PickleItem<'_>]) -> Result<Tensor> {
        let mut rows: Vec<Tensor> = Vec::new();
        for (at, value) in values.iter().enumerate() {
            let row = value.to_tensor().and_then(|row| row.ok_or_else(|| no_number(value.kind())));
            let row = row.map_err(|error| in_step(error, at))?;
            match rows.first() {
                None => self.count(values.len(), row.num_elements() * row.dtype().size_bytes())?,
                Some(first) if (first.dtype(), first.shape()) == (row.dtype(), row.shape()) => {}
                Some(first) => return Err(in_step(unlike(first.shape(), row.shape()), at)),
            }
            rows.push(row);
        }
        Tensor::stack(&rows, 0)
    }

    fn numbers(&mut self, values: &[PickleItem<'_>]) -> Result<Tensor> {
        let (mut numbers, mut first) = (Numbers::Bools(Vec::new()), None);
        for (at, value) in values.iter().enumerate() {
            let shape = numbers.append(*value).map_err(|error| in_step(error, at))?;
            match &first {
                None => {
                    self.count(values.len(), shape.iter().product::<usize>() * 8)?;
                    first = Some(shape);
                }
                Some(first) if *first == shape => {}
                Some(first) => return Err(in_step(unlike(first, &shape), at)),
            }
        }
        let shape: Vec<usize> = std::iter::once(values.len()).chain(first.unwrap_or_default()).collect();
        numbers.tensor(&shape)
    }

    /// Counts bytes before they are taken: a pickle can have one array in many steps.
    fn count(&mut self, num_steps: usize, num_bytes: usize) -> Result<()> {
        self.num_bytes = self.num_bytes.saturating_add((num_steps as u64).saturating_mul(num_bytes as u64));
        if self.num_bytes <= EPISODE_BYTES_MAX {
            return Ok(());
        }
        let detail =
            format!("an episode must have at most {EPISODE_BYTES_MAX} bytes: got {}", self.num_bytes);
        Err(Error::new(ErrorKind::LimitExceeded, detail))
    }
}

fn texts(values: &[PickleItem<'_>]) -> Result<NonTensor> {
    let text = |(at, value): (usize, &PickleItem<'_>)| {
        value.as_text().map(Into::into).ok_or_else(|| {
            let detail = format!("must be a text as in the first step: got a value of kind {}", value.kind());
            in_step(Error::new(ErrorKind::Incompatible, detail), at)
        })
    };
    NonTensor::each(&[values.len()], values.iter().enumerate().map(text).collect::<Result<_>>()?)
}

/// Numbers of the narrowest kind that holds all.
enum Numbers {
    Bools(Vec<bool>),
    Ints(Vec<i64>),
    Floats(Vec<f32>),
}

impl Numbers {
    /// Appends a number, or those of nested lists. Returns the lengths of the lists. Pickles bound how deep they are.
    fn append(&mut self, value: PickleItem<'_>) -> Result<Vec<usize>> {
        if let Some(items) = value.items() {
            let (len, mut inner): (usize, Option<Vec<usize>>) = (items.len(), None);
            for item in items {
                let shape = self.append(item)?;
                match &inner {
                    Some(first) if *first != shape => return Err(unlike(first, &shape)),
                    _ => inner = Some(shape),
                }
            }
            return Ok(std::iter::once(len).chain(inner.unwrap_or_default()).collect());
        }
        match (value.as_bool(), value.as_int(), value.as_float()) {
            (Some(flag), ..) => match self {
                Self::Bools(all) => all.push(flag),
                Self::Ints(all) => all.push(i64::from(flag)),
                Self::Floats(all) => all.push(f32::from(u8::from(flag))),
            },
            (_, Some(int), _) => match self {
                Self::Bools(all) => {
                    let widened = all.iter().map(|flag| i64::from(*flag)).chain([int]);
                    *self = Self::Ints(widened.collect());
                }
                Self::Ints(all) => all.push(int),
                Self::Floats(all) => all.push(int as f32),
            },
            (.., Some(float)) => {
                let mut widened = match self {
                    Self::Bools(all) => all.iter().map(|flag| f32::from(u8::from(*flag))).collect(),
                    Self::Ints(all) => all.iter().map(|int| *int as f32).collect(),
                    Self::Floats(all) => std::mem::take(all),
                };
                widened.push(float as f32);
                *self = Self::Floats(widened);
            }
            _ => return Err(no_number(value.kind())),
        }
        Ok(Vec::new())
    }

    fn tensor(self, shape: &[usize]) -> Result<Tensor> {
        match self {
            Self::Bools(all) => Tensor::from_vec(shape, all),
            Self::Ints(all) => Tensor::from_vec(shape, all),
            Self::Floats(all) => Tensor::from_vec(shape, all),
        }
    }
}

fn in_step(error: Error, at: usize) -> Error {
    error.at(format!("step {at}"))
}

fn missing(key: &str, at: usize) -> Error {
    let error = Error::new(ErrorKind::UnknownName, "must be in every step: it is missing");
    named(in_step(error, at), key)
}

fn unlike(first: &[usize], other: &[usize]) -> Error {
    let detail = format!("must have the shape {first:?} of the first: got {other:?}");
    Error::new(ErrorKind::ShapeMismatch, detail)
}

fn no_number(kind: &str) -> Error {
    let detail =
        format!("must be numbers, a text, an image or a dictionary of them: got a value of kind {kind}");
    Error::new(ErrorKind::Incompatible, detail)
}
