//! All bindings, by name.

use std::collections::BTreeMap;

use super::binding::Binding;
use super::name::BindingName;

/// All bindings at one moment.
#[derive(Clone, Default)]
pub struct Bindings {
    by_name: BTreeMap<BindingName, Binding>,
}

impl Bindings {
    /// Returns the binding of this name.
    #[must_use]
    pub fn get(&self, name: &BindingName) -> Option<&Binding> {
        self.by_name.get(name)
    }

    /// Returns the binding of this name for a change.
    pub fn get_mut(&mut self, name: &BindingName) -> Option<&mut Binding> {
        self.by_name.get_mut(name)
    }

    /// Adds a binding; returns the previous one of this name.
    pub fn insert(&mut self, binding: Binding) -> Option<Binding> {
        self.by_name.insert(binding.name.clone(), binding)
    }

    /// Removes the binding of this name and returns it.
    pub fn remove(&mut self, name: &BindingName) -> Option<Binding> {
        self.by_name.remove(name)
    }

    /// Returns every binding in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = &Binding> {
        self.by_name.values()
    }
}
