//! Greets people.

use cofferdam_guest::{Failure, connector};

connector!("wit/@name@.wit", @Type@);

struct @Type@;

impl Guest for @Type@ {
    fn greet(name: String) -> Result<String, Failure> {
        if name.is_empty() {
            return Err(Failure::invalid_input("name", "must not be empty"));
        }
        Ok(format!("Hello, {name}!"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_needed() {
        assert!(@Type@::greet(String::new()).is_err());
    }
}
