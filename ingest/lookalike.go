package ingest

// lookalikes are characters that are drawn as a letter or a digit of the
// reserved keys and that Unicode's decomposition leaves as they are: letters of
// other scripts, small capitals, letters with a stroke. One line holds the
// letter and its doubles, in lower case. The choice follows Unicode's list of
// confusables (UTS #39) for the letters that the keys are made of.
var lookalikes = doubles(
	"aаαɑᴀꭺꓮ⍺ⲁ", "bьʙƅꓐꮟβᏏ", "cсϲᴄⲥꮯꓚ", "dԁᴅꓓꮷɗđꓒ", "eеεҽᴇɛ℮ꓰєꬲⲉ", "fꜰƒꬵϝꓝ", "gɡɢցƍꓖ",
	"hһнհʜɦħꮋꓧⲏꮒ", "iіιıɪꙇꭵɩⲓ", "jјϳᴊɉȷꓙꭻ", "kкκᴋⲕĸƙꓗꮶқ", "lӏʟłɭꓡꮮǀאا", "mмᴍⲙꓟꮇɱ", "nոпɴηռꓠƞŋⲛ",
	"oоοօᴏσⲟꓳøɵჿ", "pрρᴘⲣꓑꮲþϸ", "rгʀꭇᴦⲅꓣꮢ", "sѕꜱꮪꓢƽʂ", "tтτᴛⲧꓔꭲŧƭ", "uυսᴜꓴʋ", "vѵνᴠꓦꮩ",
	"wԝѡᴡꓪꮃɯա", "xхχⲭꓫ", "yуүʏꓬγყ", "zᴢꓜꮓʐƶ", "8ȣზ৪੪",
)

func doubles(lines ...string) map[rune]rune {
	m := map[rune]rune{}
	for _, line := range lines {
		letter := rune(line[0])
		for _, c := range line[1:] {
			m[c] = letter
		}
	}
	return m
}

// lookalike gives the letter that a character in lower case is drawn as. What
// cannot be told apart in many a font, 1, i and l, 0 and o, is one letter.
func lookalike(c rune) rune {
	switch {
	case c >= 0x1f150 && c <= 0x1f169: // white on black circles
		c += 'a' - 0x1f150
	case c >= 0x1f170 && c <= 0x1f189: // and squares
		c += 'a' - 0x1f170
	case c >= 0x1f1e6 && c <= 0x1f1ff: // regional indicators
		c += 'a' - 0x1f1e6
	case c >= 0x80:
		if l, ok := lookalikes[c]; ok {
			c = l
		}
	}
	switch c {
	case '1', 'i':
		return 'l'
	case '0':
		return 'o'
	}
	return c
}
