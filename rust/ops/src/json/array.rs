//! Arrays whose items are counted while they are read, so that memory is bounded before the text ends.

use std::fmt;
use std::marker::PhantomData;

use coregw_core::InputCode;
use serde::de::{Deserialize, Deserializer, Error as _, SeqAccess, Visitor};

use super::refusal::refuse;

/// What the items of an array are collected in.
pub(crate) trait Items<'de>: Default {
    /// The number of items.
    fn len(&self) -> usize;

    /// Reads the next item. Returns false at the end of the array.
    fn read_next<A: SeqAccess<'de>>(&mut self, array: &mut A) -> Result<bool, A::Error>;
}

impl<'de, T: Deserialize<'de>> Items<'de> for Vec<T> {
    fn len(&self) -> usize {
        self.len()
    }

    fn read_next<A: SeqAccess<'de>>(&mut self, array: &mut A) -> Result<bool, A::Error> {
        let item = array.next_element()?;
        let is_item = item.is_some();
        self.extend(item);
        Ok(is_item)
    }
}

/// Reads the array that is the member `name`, of at most `max` items. The error of an item names its index.
///
/// # Errors
/// With `code`, as soon as there are more items.
pub(crate) fn array<'de, D: Deserializer<'de>, T: Items<'de>>(
    deserializer: D,
    name: &'static str,
    max: usize,
    code: InputCode,
) -> Result<T, D::Error> {
    deserializer.deserialize_seq(ArrayVisitor { name, max, code, items: PhantomData })
}

struct ArrayVisitor<T> {
    name: &'static str,
    max: usize,
    code: InputCode,
    items: PhantomData<T>,
}

impl<'de, T: Items<'de>> Visitor<'de> for ArrayVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<T, A::Error> {
        let Self { name, max, code, .. } = self;
        let mut items = T::default();
        let in_item = |index: usize| move |error| A::Error::custom(format!("{name}[{index}]: {error}"));
        while items.read_next(&mut array).map_err(in_item(items.len()))? {
            if items.len() > max {
                return Err(refuse(code, &format!("{name}: more than {max} items")));
            }
        }
        Ok(items)
    }
}
