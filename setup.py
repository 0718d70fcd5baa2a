"""The compiled part. Everything else about the package is in pyproject.toml.

It is optional: where there is no compiler, Cairn is installed without it and Python does its work.
"""

from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel

HERE = Path("src/cairn/native")


class AnyPython(bdist_wheel):
    """The library is C alone: it is the same for every version of Python."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


setup(
    cmdclass={"bdist_wheel": AnyPython},
    ext_modules=[
        Extension(
            "cairn.native._rows",
            sources=sorted(map(str, HERE.glob("*.c"))),
            depends=sorted(map(str, HERE.glob("*.h"))),
            # Who is declared nowhere would be looked for when the library is loaded, in vain.
            extra_compile_args=[
                *("-std=c11", "-O2", "-Wall", "-Wextra", "-Werror=implicit"),
                "-fvisibility=hidden",
            ],
            libraries=["m"],
            optional=True,
        )
    ],
)
