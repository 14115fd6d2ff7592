//! A program that calls a connector: a home, a compiler, a name, and that is all.
//!
//! `cargo run --example embed -- HOME COFFERDAM CONNECTOR OP ARGS`, with the path of the `cofferdam` binary.

use cofferdam::{Compiler, Host};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let [home, cofferdam, connector, op, args] = arguments()?;
    let host = Host::builder().home(home).compiler(Compiler::child(cofferdam)).build()?;
    let connector = host.resolve(&connector)?;
    match host.call(&connector, &op, serde_json::from_str(&args)?).await {
        Ok(value) => anstream::println!("{value:#}"),
        Err(error) => anstream::println!("{}", serde_json::to_string_pretty(&error)?),
    }
    Ok(())
}

/// The five arguments.
fn arguments() -> Result<[String; 5], String> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    arguments.try_into().map_err(|_| "give HOME COFFERDAM CONNECTOR OP ARGS".to_owned())
}
