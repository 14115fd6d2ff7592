//! Values in, values out: every shape a value can have, and every failure a connector can claim.

use cofferdam_guest::{Failure, NetworkPhase, connector};

connector!("wit/hello.wit", Hello);

struct Hello;

impl Guest for Hello {
    fn greet(name: String, tone: Option<Tone>) -> Result<Greeting, Failure> {
        if name.trim().is_empty() {
            return Err(Failure::invalid_input("name", "must not be empty"));
        }
        let text = match tone.unwrap_or(Tone::Formal) {
            Tone::Formal => format!("Good day, {name}."),
            Tone::Warm => format!("Hello, dear {name}!"),
        };
        let length = u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
        Ok(Greeting { text, length })
    }

    fn echo_scalars(value: Scalars) -> Result<Scalars, Failure> {
        Ok(value)
    }

    fn areas(shapes: Vec<Shape>) -> Result<Vec<f64>, Failure> {
        let area = |shape| match shape {
            Shape::Empty => 0.0,
            Shape::Circle(radius) => std::f64::consts::PI * radius * radius,
            Shape::Rectangle((width, height)) => width * height,
        };
        Ok(shapes.into_iter().map(area).collect())
    }

    fn common_rights(one: Rights, other: Rights) -> Result<Rights, Failure> {
        Ok(one & other)
    }

    fn by_age(mut people: Vec<Person>) -> Result<Vec<Person>, Failure> {
        people.sort_by_key(|person| std::cmp::Reverse(person.age));
        Ok(people)
    }

    fn reverse(mut bytes: Vec<u8>) -> Result<Vec<u8>, Failure> {
        bytes.reverse();
        Ok(bytes)
    }

    fn parse_all(texts: Vec<String>) -> Result<Vec<Result<i64, String>>, Failure> {
        Ok(texts.into_iter().map(|text| text.parse().map_err(|_| text)).collect())
    }

    fn divide(dividend: i64, divisor: i64) -> Result<(i64, i64), Failure> {
        let both = dividend.checked_div(divisor).zip(dividend.checked_rem(divisor));
        both.ok_or_else(|| Failure::invalid_input("divisor", "the quotient is not a number of 64 bits"))
    }

    fn nothing() -> Result<(), Failure> {
        Ok(())
    }

    fn fail(kind: Kind) -> Result<(), Failure> {
        Err(match kind {
            Kind::Upstream => Failure::upstream(503, "out_of_order"),
            Kind::Network => Failure::network(Some(NetworkPhase::Connect)),
            Kind::InvalidInput => Failure::invalid_input("kind", "asks for an invalid input"),
            Kind::Failed => Failure::failed("as_asked", "The operation failed, as it was asked to."),
        }
        .with_detail("for the operator only"))
    }
}
