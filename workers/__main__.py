"""`python -m workers`: stays empty, since every forked child imports it again."""

if __name__ == "__main__":
    from workers.process.start import main

    main()
