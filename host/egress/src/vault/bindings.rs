//! All that is bound, by name.

use std::collections::BTreeMap;

use super::binding::Binding;
use super::name::BindingName;

/// All that is bound at one moment.
#[derive(Clone, Default)]
pub struct Bindings {
    by_name: BTreeMap<BindingName, Binding>,
}

impl Bindings {
    /// The binding of this name.
    #[must_use]
    pub fn get(&self, name: &BindingName) -> Option<&Binding> {
        self.by_name.get(name)
    }

    /// The binding of this name, to change.
    pub fn get_mut(&mut self, name: &BindingName) -> Option<&mut Binding> {
        self.by_name.get_mut(name)
    }

    /// Binds; returns what was bound under the name before.
    pub fn insert(&mut self, binding: Binding) -> Option<Binding> {
        self.by_name.insert(binding.name.clone(), binding)
    }

    /// Removes what is bound under the name, and returns it.
    pub fn remove(&mut self, name: &BindingName) -> Option<Binding> {
        self.by_name.remove(name)
    }

    /// Every binding, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Binding> {
        self.by_name.values()
    }
}
