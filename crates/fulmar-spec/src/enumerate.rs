//! The number of values of a spec, their enumeration, and conversions between encodings of choices.

use fulmar_core::{Dtype, Error, ErrorKind, Result, num_elements};
use fulmar_tensor::{Entry, Tensor, TensorDict};

use crate::composite::Composite;
use crate::discrete::{Cell, Class, Discrete};
use crate::leaf::{Leaf, Space, check_elements, discrete};
use crate::number::of_floats;
use crate::shape::Shape;
use crate::spec::TensorSpec;

impl TensorSpec {
    /// Returns the number of values that [`TensorSpec::enumerate`] gives without a mask; `None` if it is
    /// infinite. Every cell of a batch has the same value, so a batch has as many values as one cell. A
    /// dictionary has the product of its leaves.
    ///
    /// # Errors
    /// `Incompatible` if cells differ in their number of values, or for JSON values and stacked specs; `LimitExceeded` past 2^128.
    ///
    /// # Examples
    /// ```
    /// use fulmar_core::Dtype;
    /// use fulmar_spec::TensorSpec;
    /// assert_eq!(TensorSpec::multi_categorical(&[2, 3], [2], Dtype::I64)?.cardinality()?, Some(6));
    /// assert_eq!(TensorSpec::binary([5], Dtype::I8)?.cardinality()?, Some(32));
    /// assert_eq!(TensorSpec::unbounded([1], Dtype::F32)?.cardinality()?, None);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn cardinality(&self) -> Result<Option<u128>> {
        match self {
            Self::Leaf(Leaf { space: Space::Discrete(discrete), shape, .. }) => {
                product(counts(discrete, shape)?.into_iter().map(|count| Some(count as u128)))
            }
            Self::Leaf(_) => Ok(None),
            Self::Choice(choice) => choice.cardinality(),
            Self::Composite(composite) => {
                let all =
                    composite.specs().map(|(_, spec)| spec.cardinality()).collect::<Result<Vec<_>>>()?;
                product(all.into_iter())
            }
            Self::NonTensor(_) | Self::Stacked(_) => Err(uncountable(self)),
        }
    }

    /// Returns all values, stacked along a new first dimension, the last choice changing fastest; with
    /// `use_mask` only the allowed ones. All cells of one value are the same.
    ///
    /// # Errors
    /// The errors of [`TensorSpec::cardinality`]; `Incompatible` if there are infinitely many, or cells have
    /// different masks; `LimitExceeded` if they would hold more elements than
    /// [`SPEC_ELEMENTS_MAX`](fulmar_core::limits::SPEC_ELEMENTS_MAX).
    pub fn enumerate(&self, use_mask: bool) -> Result<Entry> {
        match self {
            Self::Leaf(Leaf { space: Space::Discrete(discrete), shape, dtype }) => {
                enumerate_cells(discrete, shape, *dtype, use_mask).map(Entry::Tensor)
            }
            Self::Choice(choice) => choice.enumerate(use_mask),
            Self::Composite(composite) => enumerate_composite(composite, use_mask).map(Entry::Dict),
            _ => Err(uncountable(self)),
        }
    }

    /// Converts the spec to one-hot blocks; masks are kept.
    ///
    /// # Errors
    /// `Incompatible` if the spec has no choices.
    pub fn to_one_hot_spec(&self) -> Result<Self> {
        match self {
            Self::Leaf(leaf) => leaf.recoded_spec(Class::one_hot, Dtype::Bool).map(Self::Leaf),
            other => Err(uncountable(other)),
        }
    }

    /// Converts the spec to indices; masks are kept.
    ///
    /// # Errors
    /// `Incompatible` if the spec has no choices.
    pub fn to_categorical_spec(&self) -> Result<Self> {
        match self {
            Self::Leaf(leaf) => leaf.indexed().map(Self::Leaf),
            other => Err(uncountable(other)),
        }
    }

    /// Returns the one-hot blocks of `value`, indices of this spec.
    ///
    /// # Errors
    /// The errors of [`TensorSpec::check`]; `Incompatible` if the spec has no choices.
    ///
    /// # Examples
    /// ```
    /// use fulmar_core::Dtype;
    /// use fulmar_spec::TensorSpec;
    /// use fulmar_tensor::Tensor;
    /// let action = TensorSpec::categorical(3, [], Dtype::I64)?;
    /// let one_hot = action.to_one_hot(&Tensor::from_vec(&[2], vec![0_i64, 2])?)?;
    /// assert_eq!(one_hot.to_vec::<bool>()?, [true, false, false, false, false, true]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn to_one_hot(&self, value: &Tensor) -> Result<Tensor> {
        self.recode(value, Self::to_one_hot_spec)
    }

    /// Returns the indices of `value`, one-hot blocks of this spec.
    ///
    /// # Errors
    /// The errors of [`TensorSpec::check`]; `Incompatible` if the spec has no choices.
    pub fn to_categorical(&self, value: &Tensor) -> Result<Tensor> {
        self.recode(value, Self::to_categorical_spec)
    }

    /// Looks up each value of this spec, which has one choice, in `table`, `[n]`.
    ///
    /// # Errors
    /// The errors of [`TensorSpec::check`]; `Incompatible` unless the spec is `Categorical` or `OneHot`;
    /// `ShapeMismatch` if `table` is not a list of `n` elements.
    ///
    /// # Examples
    /// ```
    /// use fulmar_core::Dtype;
    /// use fulmar_spec::TensorSpec;
    /// use fulmar_tensor::Tensor;
    /// let action = TensorSpec::categorical(3, [], Dtype::I64)?;
    /// let force = Tensor::from_vec(&[3], vec![-1.0_f32, 0.0, 1.0])?;
    /// let named = action.index(&Tensor::from_vec(&[2], vec![2_i64, 0])?, &force)?;
    /// assert_eq!(named.to_f32_vec(), [1.0, -1.0]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn index(&self, value: &Tensor, table: &Tensor) -> Result<Tensor> {
        let Self::Leaf(leaf @ Leaf { space: Space::Discrete(discrete), .. }) = self else {
            return Err(uncountable(self));
        };
        if !matches!(discrete.class, Class::Categorical | Class::OneHot) {
            let detail = format!("a spec must have one choice to be an index: got {}", self.kind());
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        let n = discrete.count_rows()?[0];
        if table.shape() != [n] {
            let detail = format!("table must be of shape [{n}]: got {:?}", table.shape());
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        leaf.check(value)?;
        let rows: Vec<usize> = leaf.choices(discrete, value)?.into_iter().flatten().collect();
        table.index_select(0, &rows)?.reshape(leaf.cells(value.shape()))
    }

    fn recode(&self, value: &Tensor, target: fn(&Self) -> Result<Self>) -> Result<Tensor> {
        match (self, target(self)?) {
            (Self::Leaf(from), Self::Leaf(to)) => {
                from.check(value)?;
                to.recoded(from, value)
            }
            _ => Err(uncountable(self)),
        }
    }
}

impl Leaf {
    /// Converts the leaf to indices.
    pub(crate) fn indexed(&self) -> Result<Self> {
        let dtype = match &self.space {
            Space::Discrete(discrete) if discrete.class.is_one_hot() => Dtype::I64,
            _ => self.dtype,
        };
        self.recoded_spec(Class::indexed, dtype)
    }

    fn recoded_spec(&self, class: fn(Class) -> Class, dtype: Dtype) -> Result<Self> {
        let Space::Discrete(old) = &self.space else {
            return Err(uncountable(&TensorSpec::Leaf(self.clone())));
        };
        let class = class(old.class);
        if class == old.class {
            return Ok(self.clone());
        }
        let mut dims = self.shape.dims()[..self.shape.rank() - old.class.rank()].to_vec();
        if class.is_one_hot() {
            dims.push(Some(old.count_rows()?.iter().take(old.num_choices()).sum()));
        } else if class.rank() == 1 {
            dims.push(Some(old.num_choices()));
        }
        Self::new(dims.into(), dtype, discrete(class, old.counts.clone(), old.mask.clone()))
    }

    /// Converts the choices in `value` of `from` to the encoding of this leaf.
    pub(crate) fn recoded(&self, from: &Self, value: &Tensor) -> Result<Tensor> {
        let (Space::Discrete(own), Space::Discrete(other)) = (&self.space, &from.space) else {
            return Err(uncountable(&TensorSpec::Leaf(self.clone())));
        };
        let choices = from.choices(other, value)?;
        let cells = from.cells(value.shape());
        let sizes = self.shape.sizes();
        let shape = [cells, &sizes[self.shape.rank() - self.cell_rank()..]].concat();
        check_elements(num_elements(&shape)?)?;
        let mut out = Vec::new();
        own.each(cells, |at, cell| {
            cell.write(&choices[at], &mut out);
            Ok(())
        })?;
        of_floats(self.dtype, &shape, out)
    }
}

/// Returns the number of values of each choice of a cell in enumeration.
fn counts(discrete: &Discrete, shape: &Shape) -> Result<Vec<usize>> {
    if discrete.class == Class::Binary {
        let len = shape.dims().last().map_or(1, |dim| dim.unwrap_or(1));
        check_elements(len)?;
        return Ok(vec![2; len]);
    }
    // Cells that differ are enumerated together, as one.
    let counts = discrete.counts.shape();
    if counts.len() > 1 && !Shape::from(counts).ends(&shape.sizes()) {
        let detail = format!(
            "nvec must differ along all dimensions it differs in to be enumerated: got {counts:?} for {shape}"
        );
        return Err(Error::new(ErrorKind::Incompatible, detail));
    }
    discrete.count_rows()
}

fn enumerate_cells(discrete: &Discrete, shape: &Shape, dtype: Dtype, use_mask: bool) -> Result<Tensor> {
    let counts = counts(discrete, shape)?;
    let mask = discrete.mask.as_ref().filter(|_| use_mask);
    if mask.is_some_and(|mask| mask.rank() > 1) {
        let detail = "all cells must have one mask to be enumerated: got a mask for each";
        return Err(Error::new(ErrorKind::Incompatible, detail));
    }
    let mask = mask.map(Tensor::to_vec::<bool>).transpose()?;
    let sizes = shape.sizes();
    let total = product(counts.iter().map(|count| Some(*count as u128)))?
        .and_then(|total| usize::try_from(total).ok());
    check_elements(num_elements(&[&[total.unwrap_or(usize::MAX)], &*sizes].concat())?)?;
    let class = if discrete.class == Class::Binary { Class::MultiCategorical } else { discrete.class };
    let cell = Cell { class, counts: &counts, mask: mask.as_deref() };
    let mut written = Vec::new();
    let mut choices = vec![0; counts.len()];
    let mut rows: usize = 0;
    let cell_len = if class.is_one_hot() { counts.iter().sum() } else { counts.len() };
    let copies = num_elements(&sizes)?.checked_div(cell_len).unwrap_or(0);
    for _ in 0..total.unwrap_or(0) {
        let start = written.len();
        cell.write(&choices, &mut written);
        if cell.read(&written[start..]).is_ok() {
            rows += 1;
            let one = written[start..].to_vec();
            written.truncate(start);
            (0..copies).for_each(|_| written.extend_from_slice(&one));
        } else {
            written.truncate(start);
        }
        advance(&mut choices, &counts);
    }
    of_floats(dtype, &[&[rows], &*sizes].concat(), written)
}

fn enumerate_composite(composite: &Composite, use_mask: bool) -> Result<TensorDict> {
    let mut leaves = Vec::new();
    for (name, spec) in composite.specs() {
        let entry = spec.enumerate(use_mask).map_err(|error| error.at(format!("{name:?}")))?;
        let len = match &entry {
            Entry::Tensor(tensor) => tensor.shape().first().copied(),
            Entry::Dict(dict) => dict.batch_size().first().copied(),
            _ => None,
        };
        leaves.push((name, entry, len.ok_or_else(|| uncountable(spec))?));
    }
    let total = product(leaves.iter().map(|(_, _, len)| Some(*len as u128)))?
        .and_then(|total| usize::try_from(total).ok());
    let total = total.unwrap_or(usize::MAX);
    check_elements(total)?;
    let mut dict = TensorDict::new(&[&[total], &*composite.shape().sizes()].concat())?;
    let mut repeat = total;
    for (name, entry, len) in leaves {
        repeat = repeat.checked_div(len).unwrap_or(0);
        check_elements(total.saturating_mul(elements(&entry) / len.max(1)))?;
        let rows: Vec<usize> = (0..total).map(|row| row / repeat % len).collect();
        match entry {
            Entry::Tensor(tensor) => {
                dict.set(name, tensor.index_select(0, &rows)?)?;
            }
            Entry::Dict(inner) => dict.set(name, inner.index_select(&rows)?)?,
            other => dict.set(name, other)?,
        }
    }
    Ok(dict)
}

/// Returns the number of elements of all tensors in `entry`.
fn elements(entry: &Entry) -> usize {
    match entry {
        Entry::Tensor(tensor) => tensor.num_elements(),
        Entry::Dict(dict) => dict.entries().map(|(_, entry)| elements(entry)).fold(0, usize::saturating_add),
        _ => 0,
    }
}

/// Increments the choices, the last one fastest.
fn advance(choices: &mut [usize], counts: &[usize]) {
    for (choice, count) in choices.iter_mut().zip(counts).rev() {
        *choice += 1;
        if *choice < *count {
            return;
        }
        *choice = 0;
    }
}

/// Returns the product; `None` if a factor is infinite.
pub fn product(factors: impl Iterator<Item = Option<u128>>) -> Result<Option<u128>> {
    let mut total = Some(1_u128);
    for factor in factors {
        total = match (total, factor) {
            (Some(total), Some(factor)) => Some(total.checked_mul(factor).ok_or_else(|| {
                Error::new(ErrorKind::LimitExceeded, "a spec must have fewer than 2^128 values to be counted")
            })?),
            _ => None,
        };
    }
    Ok(total)
}

/// Returns the error for a spec whose values cannot be listed.
pub fn uncountable(spec: &TensorSpec) -> Error {
    Error::new(ErrorKind::Incompatible, format!("a spec must be discrete for this: got {}", spec.kind()))
}
