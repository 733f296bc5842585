//! Pictures of trees as SVG.

use std::fmt::Write;

use fulmar_core::limits::TREE_DRAWN_MAX;
use fulmar_core::{Error, ErrorKind, Result};

use crate::tree::Tree;

/// Width and height of the place of a leaf, in pixels.
const LEAF: (f64, f64) = (90.0, 70.0);

impl Tree {
    /// Draws each vertex once, below its first parent, with a line for each link and `label` under it.
    ///
    /// # Errors
    /// `LimitExceeded` if there are more than [`TREE_DRAWN_MAX`] vertices.
    pub fn to_svg(&self, label: &dyn Fn(usize) -> String) -> Result<String> {
        let layout = Layout::of(self)?;
        let mut body = String::new();
        let center = |id: usize| {
            (layout.left[id] + layout.width[id] * LEAF.0 / 2.0, (layout.depth[id] as f64 + 0.5) * LEAF.1)
        };
        for (parent, child) in self.edges() {
            let ((x1, y1), (x2, y2)) = (center(parent), center(child));
            let _ = write!(body, r##"<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="#888"/>"##);
        }
        for id in 0..self.num_vertices() {
            let (x, y) = center(id);
            let text = escaped(&label(id));
            let _ = write!(
                body,
                r##"<circle cx="{x}" cy="{y}" r="8" fill="#4a7ab5"/><text x="{x}" y="{}">{text}</text>"##,
                y + 22.0
            );
        }
        Ok(layout.picture(&body))
    }

    /// Draws each vertex as a box above those of its children, as wide as they are together, with `label` in it.
    ///
    /// # Errors
    /// `LimitExceeded` if there are more than [`TREE_DRAWN_MAX`] vertices.
    pub fn to_box_svg(&self, label: &dyn Fn(usize) -> String) -> Result<String> {
        let layout = Layout::of(self)?;
        let mut body = String::new();
        for id in 0..self.num_vertices() {
            let (x, y) = (layout.left[id], layout.depth[id] as f64 * LEAF.1);
            let (width, height) = (layout.width[id] * LEAF.0, LEAF.1);
            let text = escaped(&label(id));
            let _ = write!(
                body,
                r##"<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="#dce6f2" stroke="#4a7ab5"/><text x="{}" y="{}">{text}</text>"##,
                x + width / 2.0,
                y + height / 2.0 + 4.0
            );
        }
        Ok(layout.picture(&body))
    }
}

/// The place of each vertex below its first parent.
struct Layout {
    depth: Vec<usize>,
    /// In pixels.
    left: Vec<f64>,
    /// In leaves.
    width: Vec<f64>,
}

impl Layout {
    fn of(tree: &Tree) -> Result<Self> {
        let count = tree.num_vertices();
        if count > TREE_DRAWN_MAX {
            let detail = format!("the tree must have at most {TREE_DRAWN_MAX} vertices: got {count}");
            return Err(Error::new(ErrorKind::LimitExceeded, detail));
        }
        let order = tree.breadth_first();
        let mut own: Vec<Vec<usize>> = vec![Vec::new(); count];
        let (mut depth, mut is_placed) = (vec![0; count], vec![false; count]);
        for &id in &order {
            for &child in tree.children(id)? {
                if !std::mem::replace(&mut is_placed[child], true) {
                    own[id].push(child);
                    depth[child] = depth[id] + 1;
                }
            }
        }
        let mut width = vec![0.0_f64; count];
        for &id in order.iter().rev() {
            width[id] = own[id].iter().map(|child| width[*child]).sum::<f64>().max(1.0);
        }
        let mut left = vec![0.0; count];
        for &id in &order {
            let mut x = left[id];
            for &child in &own[id] {
                left[child] = x;
                x += width[child] * LEAF.0;
            }
        }
        Ok(Self { depth, left, width })
    }

    fn picture(&self, body: &str) -> String {
        let (width, height) =
            (self.width[0] * LEAF.0, (self.depth.iter().max().unwrap_or(&0) + 1) as f64 * LEAF.1);
        let style = r#"font-family="sans-serif" font-size="11" text-anchor="middle""#;
        format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" {style}>{body}</svg>"#
        )
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
