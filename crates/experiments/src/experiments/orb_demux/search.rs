//! Other ways from a request to its operation: layer by layer, by linear search or by hashing.
//!
//! Each layer looks up one name: of the adapters on the way, of the object, of the operation. A name is there as
//! a value already; active demultiplexing has to read it out of the bytes of a key.

use std::collections::HashMap;

/// What a layered server is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Names of the adapters from the root on.
    pub adapters: &'a [String],
    /// The object within its adapter.
    pub object: u64,
    pub operation: &'a str,
}

/// Adapters, objects and operations in the order in which they were made.
#[derive(Debug, Default)]
pub struct Linear {
    children: Vec<(String, Linear)>,
    objects: Vec<(u64, &'static [&'static str])>,
}

impl Linear {
    /// Nested adapters with these names; the innermost has so many objects.
    pub fn new(adapters: &[String], objects: u64, operations: &'static [&'static str]) -> Self {
        match adapters.split_first() {
            Some((name, inner)) => {
                let child = (name.clone(), Self::new(inner, objects, operations));
                Self { children: vec![child], objects: Vec::new() }
            }
            None => Self {
                children: Vec::new(),
                objects: (0..objects).map(|number| (number, operations)).collect(),
            },
        }
    }

    /// The number of the operation.
    pub fn find(&self, asked: &Asked<'_>) -> Option<usize> {
        let mut adapter = self;
        for name in asked.adapters {
            adapter = &adapter.children.iter().find(|(child, _)| child == name)?.1;
        }
        let (_, operations) = adapter.objects.iter().find(|(number, _)| *number == asked.object)?;
        operations.iter().position(|operation| *operation == asked.operation)
    }
}

/// Adapters, objects and operations in the hash tables of Rust's library.
#[derive(Debug, Default)]
pub struct Hashed {
    children: HashMap<String, Hashed>,
    objects: HashMap<u64, usize>,
    /// The number of each operation, by interface.
    interfaces: Vec<HashMap<&'static str, usize>>,
}

impl Hashed {
    /// As [`Linear::new`].
    pub fn new(adapters: &[String], objects: u64, operations: &'static [&'static str]) -> Self {
        match adapters.split_first() {
            Some((name, inner)) => {
                let children = [(name.clone(), Self::new(inner, objects, operations))].into();
                Self { children, ..Self::default() }
            }
            None => {
                let numbers = operations.iter().enumerate().map(|(number, name)| (*name, number)).collect();
                let objects = (0..objects).map(|number| (number, 0)).collect();
                Self { children: HashMap::new(), objects, interfaces: vec![numbers] }
            }
        }
    }

    /// The number of the operation.
    pub fn find(&self, asked: &Asked<'_>) -> Option<usize> {
        let mut adapter = self;
        for name in asked.adapters {
            adapter = adapter.children.get(name)?;
        }
        let interface = *adapter.objects.get(&asked.object)?;
        adapter.interfaces[interface].get(asked.operation).copied()
    }
}
