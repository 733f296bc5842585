//! The items of an index in JSON.

use fulmar_core::{Error, Result};
use serde::Deserialize;

use crate::index::Index;
use crate::tensor::Tensor;

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "an index item must be a position, null, \"...\", a list of positions or bools, a range, or a tensor of them"
)]
pub enum IndexItem {
    At(i64),
    NewAxis(()),
    Ellipsis(Dots),
    List(Vec<i64>),
    Mask(Vec<bool>),
    Slice(Bounds),
    Positions(Shaped),
    MaskOf(ShapedMask),
}

#[derive(Deserialize)]
pub enum Dots {
    #[serde(rename = "...")]
    Dots,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bounds {
    start: Option<i64>,
    stop: Option<i64>,
    step: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shaped {
    shape: Vec<usize>,
    at: Vec<i64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShapedMask {
    shape: Vec<usize>,
    mask: Vec<bool>,
}

impl TryFrom<IndexItem> for Index {
    type Error = Error;

    fn try_from(item: IndexItem) -> Result<Self> {
        Ok(match item {
            IndexItem::At(at) => Self::At(at),
            IndexItem::NewAxis(()) => Self::NewAxis,
            IndexItem::Ellipsis(Dots::Dots) => Self::Ellipsis,
            IndexItem::List(at) => Self::list(at),
            IndexItem::Mask(mask) => Self::Pick(Tensor::from_vec(&[mask.len()], mask)?),
            IndexItem::Slice(Bounds { start, stop, step }) => {
                Self::Slice { start, stop, step: step.unwrap_or(1) }
            }
            IndexItem::Positions(Shaped { shape, at }) => Self::Pick(Tensor::from_vec(&shape, at)?),
            IndexItem::MaskOf(ShapedMask { shape, mask }) => Self::Pick(Tensor::from_vec(&shape, mask)?),
        })
    }
}
