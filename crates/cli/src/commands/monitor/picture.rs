//! Pictures in files: SVG, or PNG rendered from it.

use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use resvg::{
    tiny_skia::{Pixmap, Transform},
    usvg::{Options, Tree, fontdb::Database},
};
use tompion_history::plot::Theme;

/// Latin letters, digits and arrows of Inter (`fonts/README.md`), for machines without fonts.
const FONTS: [&[u8]; 2] =
    [include_bytes!("../../../fonts/Inter-Regular.otf"), include_bytes!("../../../fonts/Inter-SemiBold.otf")];

/// Pixels per SVG unit, so that pictures are sharp on screens and on paper.
const SCALE: f32 = 2.0;

/// File and colours of a picture.
#[derive(Args)]
// The commands' own arguments are a group of this name.
#[group(skip)]
pub struct PictureArgs {
    /// Write the picture to NAME.svg or NAME.png, or SVG to standard output (`-`)
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Choose the colours [default: in SVG the reader's preference, in PNG light]
    #[arg(long, value_enum, value_name = "WHICH")]
    theme: Option<ThemeArgument>,
}

#[derive(Clone, Copy, ValueEnum)]
enum ThemeArgument {
    /// Dark on light
    Light,
    /// Light on dark
    Dark,
}

impl PictureArgs {
    /// Names a file, with the default colours.
    pub const fn of(output: PathBuf) -> Self {
        Self { output, theme: None }
    }

    fn is_png(&self) -> bool {
        self.output.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("png"))
    }

    /// Returns the colours to draw with.
    pub fn theme(&self) -> Theme {
        match self.theme {
            Some(ThemeArgument::Light) => Theme::Light,
            Some(ThemeArgument::Dark) => Theme::Dark,
            None if self.is_png() => Theme::Light,
            None => Theme::Reader,
        }
    }

    /// Checks that the file's extension is of a supported format, before any work.
    pub fn check(&self) -> anyhow::Result<()> {
        let is_svg = self.output.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("svg"));
        if is_svg || self.is_png() || self.output == Path::new("-") {
            return Ok(());
        }
        bail!("expected a picture NAME.svg or NAME.png, found {}", self.output.display());
    }

    /// Writes a picture, which is given as SVG.
    pub fn write(&self, svg: &str) -> anyhow::Result<()> {
        if self.output == Path::new("-") {
            return Ok(io::stdout().lock().write_all(svg.as_bytes())?);
        }
        let bytes = if self.is_png() { png(svg)? } else { svg.as_bytes().to_vec() };
        crate::commands::write_file(&self.output, &bytes)
    }
}

/// Renders an SVG as PNG.
fn png(svg: &str) -> anyhow::Result<Vec<u8>> {
    let mut fonts = Database::new();
    FONTS.iter().for_each(|font| fonts.load_font_data(font.to_vec()));
    let options = Options { fontdb: Arc::new(fonts), font_family: "Inter".into(), ..Options::default() };
    let tree = Tree::from_str(svg, &options).context("the picture can't be drawn")?;
    let size = tree.size().to_int_size().scale_by(SCALE).context("the picture has no size")?;
    let mut pixels = Pixmap::new(size.width(), size.height()).context("the picture is too large")?;
    resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut pixels.as_mut());
    pixels.encode_png().context("the picture can't be written as PNG")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_rendered_without_fonts_of_the_machine() {
        let svg = |text: &str| {
            let style = "<style>.plot text{font-family:Inter,system-ui,sans-serif;font-size:12px;fill:#24292f}</style>";
            format!(
                "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"plot\" width=\"90\" height=\"20\">{style}\
                 <text x=\"2\" y=\"14\">{text}</text></svg>"
            )
        };
        let (nothing, words) = (png(&svg("")).unwrap(), png(&svg("due → 9 µs")).unwrap());
        assert!(words.starts_with(b"\x89PNG\r\n\x1a\n"));
        // Width and height follow the first chunk's name.
        assert_eq!(words[16..24], [0, 0, 0, 180, 0, 0, 0, 40]);
        assert!(words.len() > nothing.len() + 200, "{} {}", words.len(), nothing.len());
    }
}
